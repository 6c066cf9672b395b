"""Every legal mesh of the trainer: dp_replicate x dp_shard x cp ranks, ep borrowed from dp_shard x cp."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Degrees of one candidate."""

    dp_replicate: int
    dp_shard: int
    cp: int
    ep: int

    @property
    def world(self) -> int:
        """Ranks."""
        return self.dp_replicate * self.dp_shard * self.cp


def mesh_faults(mesh: Mesh, *, world: int, num_experts: int, heads: int, seq_len: int) -> tuple[str, ...]:
    """The inequalities that a mesh breaks, with their numbers; empty for a legal one. num_experts is 0 when dense.

    Source: prime-rl and torchtitan 0.3.0 mesh checks; DeepEP's num_experts % ranks == 0.
    """
    faults = []
    if mesh.world != world:
        faults.append(f"dp_replicate x dp_shard x cp = {mesh.world}, must be {world} ranks")
    if num_experts == 0 and mesh.ep != 1:
        faults.append(f"ep = {mesh.ep} for a dense model, must be 1")
    if num_experts and num_experts % mesh.ep:
        faults.append(f"{num_experts} experts % ep {mesh.ep} = {num_experts % mesh.ep}, must be 0")
    if (mesh.dp_shard * mesh.cp) % mesh.ep:
        faults.append(f"(dp_shard {mesh.dp_shard} x cp {mesh.cp}) % ep {mesh.ep} must be 0")
    if mesh.ep != 1 and mesh.ep % mesh.cp:
        faults.append(f"ep {mesh.ep} % cp {mesh.cp} = {mesh.ep % mesh.cp}, must be 0")
    if mesh.cp > 1 and seq_len % (2 * mesh.cp):
        faults.append(f"seq_len {seq_len} % (2 x cp {mesh.cp}) = {seq_len % (2 * mesh.cp)}, must be 0")
    if heads % mesh.cp:
        faults.append(f"{heads} attention heads % cp {mesh.cp} = {heads % mesh.cp}, must be 0")
    return tuple(faults)


def divisors(number: int) -> tuple[int, ...]:
    """Divisors of a positive number, ascending."""
    return tuple(d for d in range(1, number + 1) if number % d == 0)


def meshes(*, world: int, num_experts: int, heads: int, seq_len: int) -> tuple[Mesh, ...]:
    """All legal meshes of `world` ranks, in ascending order of (dp_replicate, cp, ep)."""
    found = []
    for replicate in divisors(world):
        for cp in divisors(world // replicate):
            for ep in divisors(world // replicate):
                mesh = Mesh(dp_replicate=replicate, dp_shard=world // replicate // cp, cp=cp, ep=ep)
                if not mesh_faults(mesh, world=world, num_experts=num_experts, heads=heads, seq_len=seq_len):
                    found.append(mesh)
    return tuple(found)
