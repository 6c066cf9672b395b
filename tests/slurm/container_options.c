/* Registers pyxis's srun options and puts their values in the environment of every task, so that a test sees them. */
#include <slurm/spank.h>
#include <stdlib.h>

SPANK_PLUGIN(container_options, 1);

static char *names[] = {"container-image", "container-mounts", "no-container-mount-home"};
static char *variables[] = {"TEST_IMAGE", "TEST_MOUNTS", "TEST_NO_HOME"};

static int keep(int number, const char *value, int remote) { return ESPANK_SUCCESS; }

static struct spank_option option(int number)
{
    struct spank_option one = {names[number], number < 2 ? "VALUE" : NULL, "as pyxis has it", number < 2, number, keep};
    return one;
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    for (int number = 0; number < 3; number++) {
        struct spank_option one = option(number);
        if (spank_option_register(spank, &one) != ESPANK_SUCCESS)
            return ESPANK_ERROR;
    }
    return ESPANK_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
    for (int number = 0; number < 3; number++) {
        struct spank_option one = option(number);
        char *value = NULL;
        if (spank_option_getopt(spank, &one, &value) == ESPANK_SUCCESS)
            spank_setenv(spank, variables[number], value ? value : "set", 1);
    }
    return ESPANK_SUCCESS;
}
