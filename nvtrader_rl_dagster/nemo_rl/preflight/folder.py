"""Whether the checkpoint folder is new, or holds the same training: NeMo-RL goes on from whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator

from nvtrader_rl_dagster.nemo_rl.checkpoints import newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case, Start
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, ok, refuse, warn
from nvtrader_rl_dagster.nemo_rl.resume import CheckpointMismatchError, refuse_other_training


def check_folder(case: Case) -> Iterator[Finding]:
    """What is in the folder fits how the run is to start."""
    if case.checkpoints is None or not case.trains:
        return
    newest = newest_checkpoint(case.checkpoints)
    if newest is None:
        if case.start in (Start.RESUME, Start.FORK):
            message = f"there is no complete checkpoint in {case.checkpoints} to go on from"
            yield refuse("no_checkpoint", message, "correct checkpointing.checkpoint_dir, or start anew")
        return
    if case.start is Start.NEW:
        message = f"{case.checkpoints} holds {newest.path.name}, and NeMo-RL would go on from it"
        remedy = "choose another checkpointing.checkpoint_dir, or ask for resume"
        yield refuse("checkpoint_folder_used", message, remedy)
        return
    try:
        refuse_other_training(case.checkpoints, dict(case.settings.values))
    except CheckpointMismatchError as error:
        said = str(error).partition("; ")[0].removeprefix("checkpoint_mismatch: ")
        if case.start is Start.FORK:
            message = f"forked: {said}; it goes on in the middle of the old order of rows"
            yield warn("fork", message, "nothing, if that is wanted; to start at the first row use a new folder")
        else:
            remedy = "choose another checkpointing.checkpoint_dir, or ask for fork to go on from it all the same"
            yield refuse("checkpoint_mismatch", said, remedy)
        return
    yield ok("checkpoint_folder", f"goes on from {newest.path.name}")
