"""What trials report as TensorBoard shows it: one directory for each trial, one chart for each name."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aggmo.lab.records import Trial


class Board:
    """Writes the curves of trials for TensorBoard, as an observer of `aggmo.lab.study.Study.run`.

    A row that is reported again replaces the one before, as in the database. Curves of trials that ran without a board
    are not on it.

    Args:
        directory: what `tensorboard --logdir` is given.

    Raises:
        ValueError: TensorBoard is not installed.

    >>> import tempfile
    >>> trial = Trial(1, "9f86d081", {"optimizer": "cm", "lr": 0.1}, "waiting")
    >>> with tempfile.TemporaryDirectory() as directory, Board(directory) as board:
    ...     board.row(trial, {"epoch": 1, "train_loss": 0.5})
    ...     board.end(trial)
    ...     [path.name for path in Path(directory).iterdir()]
    ['1 optimizer=cm lr=0.1']
    """

    def __init__(self, directory: str | Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ModuleNotFoundError as error:
            raise ValueError("TensorBoard is not installed: pip install 'aggmo[lab]'") from error
        self.directory = Path(directory)
        self._new = SummaryWriter
        self._writers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def row(self, trial: Trial, row: Mapping[str, float]) -> None:
        """Write a row; `train_loss` is called train/loss, so that charts of one split stand together."""
        epoch = int(row["epoch"])
        writer = self._writers.get(trial.trial)
        if writer is None:
            writer = self._new(str(self.directory / _name(trial)), purge_step=epoch)
            self._writers[trial.trial] = writer
        for name, value in row.items():
            if name != "epoch":
                split, _, rest = name.partition("_")
                writer.add_scalar(f"{split}/{rest}" if rest else name, value, epoch)
        writer.flush()

    def end(self, trial: Trial) -> None:
        """Close the file of a trial."""
        if writer := self._writers.pop(trial.trial, None):
            writer.close()


def _name(trial: Trial) -> str:
    """The directory of a trial: its number, and what its settings say in a few letters."""
    said = {name: value for name, value in trial.settings.items() if name not in ("task", "scale", "content")}
    text = " ".join(f"{name}={value}" for name, value in said.items())
    return f"{trial.trial} {text}".replace("/", "_")[:200]
