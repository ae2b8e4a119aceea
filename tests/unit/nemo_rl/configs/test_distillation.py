"""On-policy distillation: student, teacher, divergence."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from rollout_cases import VERSIONS, built


@pytest.mark.parametrize("version", VERSIONS)
def test_student_and_teacher_are_complete_and_only_the_student_learns(version: str) -> None:
    config = built("distillation", version=version, base_model="student", teacher_model="teacher").config
    student, teacher = config["policy"], config["teacher"]
    assert (student["model_name"], student["tokenizer"]["name"]) == ("student", "student")
    assert (teacher["model_name"], teacher["tokenizer"]["name"]) == ("teacher", "teacher")
    assert set(student) - set(teacher) == {"optimizer", "scheduler"}
    # The teacher's distribution is taken at the student's temperature.
    assert teacher["generation"] == student["generation"]


def test_a_teacher_that_is_the_student_is_pointed_out() -> None:
    def pointed_out(teacher: str) -> bool:
        run = built("distillation", base_model="student", teacher_model=teacher)
        return any("nothing is learned" in note for note in run.notes)

    assert pointed_out("student")
    assert not pointed_out("teacher")


@pytest.mark.parametrize("kind", ["forward", "reverse", "mixed"])
def test_the_divergence_is_a_choice(kind: str) -> None:
    config = built("distillation", kl_type=kind, topk_logits=16).config
    assert config["loss_fn"]["kl_type"] == kind
    assert config["distillation"]["topk_logits_k"] == 16


def test_an_unknown_divergence_is_refused() -> None:
    with pytest.raises(ValidationError, match="kl_type"):
        built("distillation", kl_type="jensen")


def test_the_teacher_can_be_named_by_its_key() -> None:
    config = built("distillation", overrides={"teacher.model_name": "big"}).config
    assert config["teacher"]["tokenizer"]["name"] == "big"
