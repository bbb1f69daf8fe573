import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from di2pose import Di2Pose, recipes
from di2pose.config import Config, from_json, to_json
from di2pose.errors import InputError


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_json_round_trip_is_exact(name):
    config = getattr(recipes, name)()
    assert from_json(Config, json.loads(json.dumps(to_json(config)))) == config


def test_paper_has_the_papers_numbers():
    config = recipes.paper()
    tok, den, dif = config.tokenizer, config.denoiser, config.diffusion
    assert (tok.encoder_blocks, tok.encoder_width, tok.decoder_blocks, tok.decoder_width) == (4, 2048, 1, 512)
    assert (tok.tokens, tok.levels, tok.codes, tok.local_joints) == (100, (7, 5, 5, 5, 5), 4375, 3)
    assert (den.layers, den.heads, den.width) == (21, 16, 1024)
    assert (dif.steps, dif.final_occlude, dif.aux_weight) == (100, 0.9, 5e-4)
    one, two = config.tokenizer_training, config.denoiser_training
    assert (one.learning_rate, one.betas, one.weight_decay) == (1e-3, (0.9, 0.999), 0.15)
    assert (two.learning_rate, two.betas, two.weight_decay) == (5.5e-4, (0.9, 0.96), 4.5e-2)
    assert (one.batch, one.epochs, two.batch, two.epochs) == (256, 20, 64, 50)
    assert not tok.augment


def test_paper_builds_with_the_parameter_counts_that_the_docs_state():
    with torch.device("meta"):
        model = Di2Pose(recipes.paper()).model
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.parts().items()}
    text = (Path(__file__).parents[1] / "docs" / "paper.md").read_text()
    for name, count in counts.items():
        assert f"| {name} | {count:,} |" in text


def test_bad_json_is_named():
    data = to_json(recipes.tiny())
    with pytest.raises(InputError, match="lacks sample_steps"):
        from_json(Config, {k: v for k, v in data.items() if k != "sample_steps"})
    with pytest.raises(InputError, match="does not know colour"):
        from_json(Config, data | {"colour": "red"})
    with pytest.raises(InputError, match=r"Config.sample_steps must be of type int, got '10'"):
        from_json(Config, data | {"sample_steps": "10"})


def test_what_older_checkpoints_lack_is_read_as_it_was_then():
    data, lacking = to_json(recipes.tiny()), set()
    for part in ("tokenizer", "diffusion", "denoiser"):
        for field in fields(getattr(recipes.tiny(), part)):
            if field.metadata.get("added"):
                del data[part][field.name]
                lacking.add(field.name)
    assert {"quantiser", "joint_embed", "augment", "aligned_weight", "observer_tokens", "carry_over"} < lacking
    assert from_json(Config, data) == recipes.tiny()


def test_removed_options_are_read_where_they_were_off_and_named_where_not():
    tiny = recipes.tiny()
    data = to_json(tiny)
    data["tokenizer"] |= {"joint_dropout": 0.0, "code_noise": 0}
    data["diffusion"] |= {"importance_sampling": False}
    assert from_json(Config, data) == tiny
    for part, option, message in (
        ("tokenizer", {"joint_dropout": 0.1}, r"TokenizerConfig\.joint_dropout was removed: only 0\.0 .* got 0\.1"),
        ("diffusion", {"importance_sampling": True}, r"DiffusionConfig\.importance_sampling was removed: only False"),
        ("tokenizer", {"block": "local_literal"}, r"one of local, mixer, got 'local_literal'"),
    ):
        with pytest.raises(InputError, match=message):
            from_json(Config, data | {part: data[part] | option})
    config = recipes.tiny()
    with pytest.raises(InputError, match="denoiser's codes must equal 125"):
        replace(config, denoiser=replace(config.denoiser, codes=126))
    with pytest.raises(InputError, match="sample_steps"):
        replace(config, sample_steps=21)
