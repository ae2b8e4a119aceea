"""Global steps out of headers that count anew in each epoch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Launch:
    """One start of the trainer; a log may hold several.

    shift: what the steps counted from the headers lack, known once a line prints the global step.
    """

    shift: int = 0
    saved_steps: list[int] = field(default_factory=list)


@dataclass
class StepCounter:
    """Counts the steps of the newest launch; `step` is global, 0 before the first one.

    per_epoch: steps that the header announces; with dynamic sampling it counts batches, of which some are given up.
    """

    step: int = 0
    per_epoch: int | None = None
    epochs: int | None = None
    launches: list[Launch] = field(default_factory=lambda: [Launch()])
    _epoch: int = 1
    _epoch_began: bool = False
    _printed: int | None = None
    _batches: int = 0
    _done: bool = False
    _kept: bool = True

    @property
    def launch(self) -> Launch:
        """The launch that the last line belongs to."""
        return self.launches[-1]

    def start(self) -> None:
        """The trainer is set up: what follows counts from its own headers."""
        if self._printed is not None:
            self.launches.append(Launch())
        self._epoch, self._epoch_began, self._printed = 1, False, None
        self._done, self._kept = False, True

    def epoch(self, number: int, total: int) -> None:
        self._epoch, self.epochs = number, total
        self._epoch_began, self._batches = True, 0

    def header(self, number: int, total: int) -> None:
        """A step begins. Its number stays the same after a batch that was given up."""
        if self._printed is None:
            self.step = (self._epoch - 1) * total + number
        elif self._epoch_began:
            self.step += number - (0 if self._kept else 1)
        else:
            self.step += number - self._printed
        self.per_epoch, self._printed = total, number
        self._batches += 1
        self._epoch_began, self._kept, self._done = False, True, False

    def correct(self, step: int) -> None:
        """A line prints the global step, which a launch that was resumed with other batches cannot count."""
        if self._printed is not None and step:
            self.launch.shift += step - self.step
            self.step = step

    def give_up_batch(self) -> None:
        """Dynamic sampling found too few usable answers and takes the next batch for the same step."""
        self._kept = False

    def finish(self) -> None:
        """The whole step was reported."""
        self._done = True

    @property
    def epochs_ended(self) -> bool:
        """Whether the last step of the last epoch is done."""
        if self.per_epoch is None or self._printed is None or self._epoch != self.epochs:
            return False
        return max(self._printed, self._batches) >= self.per_epoch and (self._done or not self._kept)
