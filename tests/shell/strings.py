"""Two hundred strings that do something in a shell that meets them unquoted; each would make the canary file."""

from __future__ import annotations

CANARY = "@CANARY@"
COMMANDS = (
    f"touch {CANARY}",
    f": >{CANARY}",
    f"cp /dev/null {CANARY}",
    f"touch${{IFS}}{CANARY}",
    f"/bin/touch {CANARY}",
)
# %s is the command; what stands around it is how it would get out of a word
WRAPPERS = (
    "$(%s)", "`%s`", "x; %s", "x;%s;", "x && %s", "x || %s", "x | %s", "x & %s &", "x\n%s\n", "x\r\n%s\r\n",
    "'; %s; '", "\"; %s; \"", "'\"; %s; \"'", "\\'; %s #", "\\\"; %s #", "$($(%s))", "\"$(%s)\"", "'$(%s)'",
    "\\$(%s)", "${x:-$(%s)}", "${x:=`%s`}", "<(%s)", ">(%s)", "$'\\n'%s", "a b $(%s) c", "{BUNDLE}$(%s)",
    "{RUN_DIR}`%s`", "{NODE_0}; %s", "{INDEX}$(%s)", "{{ 7 * 7 }}$(%s)", "{%% raw %%}$(%s){%% endraw %%}",
    "--x=$(%s)", "-x `%s`", "x]; %s; [", "x); %s; (", "x}; %s; {", "# \n%s", "~/$(%s)", "*$(%s)", "%% $(%s) %%s",
)  # fmt: skip
STRINGS = tuple(wrapper % command for command in COMMANDS for wrapper in WRAPPERS)
