"""Every module of the packages has the test that mirrors it, or is named here with the reason why not."""

import ast
from pathlib import Path

PACKAGE = Path("src/understudy")
SERVER = Path("server/src/understudy_server")
FOLDERS = [Path("tests") / name for name in ("unit", "ranks", "registry", "server", "full", "cluster")]

WITHOUT = {
    "teachers/teacher.py": "a protocol without code: its one class is tested in teachers/test_in_memory.py",
    "teachers/cache/layout.py": "sizes and checksums: teachers/cache/test_parts.py and test_reader.py",
    "plan/simulation.py": "where every trace runs: plan/test_trace.py",
    "plan/planned.py": "a type: plan/test_trace.py and plan/test_depth.py",
    "plan/layouts.py": "plan/test_depth.py, for the blocks of each stage",
    "plan/rank_models.py": "plan/test_trace.py compares it with the ranks of real trainings",
    "plan/copies.py": "a replica's memory beside a model: plan/test_depth.py and plan/test_trace.py",
    "__main__.py": "one line; every test that starts `python -m understudy` runs it",
    "errors.py": "exit codes and messages, covered by the tests of the modules that raise them",
    "cli/check.py": "the shape of a line of the doctor: cli/test_doctor.py",
    "cli/cluster.py": "`run --on cluster`: cli/test_run.py",
    "cli/collectives.py": "`doctor --collectives`: cli/test_doctor.py; on a cluster: cluster/test_collectives.py",
    "cli/first_recipe.py": "what `init` writes: cli/test_init.py",
    "cli/recipe.py": "arguments that commands share: cli/test_recipe_commands.py",
    "cli/settings.py": "the options of every command: cli/test_main.py",
    "cli/store.py": "cli/test_store_commands.py",
    "agent/eviction.py": "the message to a rank whose pod has to go: agent/test_node.py",
    "agent/surroundings.py": "agent/test_evaluation.py, and every training of train/jobs.py asks them",
    "agent/logits.py": "ranks/pipeline/test_cached_logits.py",
    "agent/training.py": "a training as a rank has it: agent/test_worker.py",
    "data/copies.py": "counts in records.json: data/test_ingest.py",
    "data/documents.py": "data/test_ingest.py",
    "data/token_arrays.py": "data/test_prepare.py",
    "data/chat_sandbox.py": "the bounds of templates: data/test_chat_template.py",
    "data/chat_tokenizer.py": "tasks/test_chat.py",
    "data/chat_turn.py": "the proof of an answer: data/test_chat_mask.py",
    "data/conversation_arrays.py": "tasks/test_chat.py",
    "data/conversation_split.py": "tasks/test_chat.py, evaluate/test_generated_answers.py",
    "data/served_check.py": "tasks/test_chat.py",
    "data/served_turns.py": "tasks/test_chat.py",
    "data/sources/json_objects.py": "data/sources/test_jsonl.py",
    "data/sources/arrow_types.py": "data/sources/test_parquet.py",
    "data/sources/arrow_rows.py": "data/sources/test_parquet.py",
    "data/sources/built_dataset.py": "data/sources/test_datasets.py",
    "data/sources/dataset_hub.py": "data/sources/test_datasets.py",
    "data/sources/dataset_parts.py": "data/sources/test_datasets.py",
    "data/sources/dataset_splits.py": "data/sources/test_datasets.py",
    "data/sources/dataset_values.py": "data/sources/test_datasets.py",
    "data/sources/saved_dataset.py": "data/sources/test_datasets.py",
    "data/padded_tokenizer.py": "tasks/test_text_classification.py",
    "data/measured.py": "evaluate/test_scoring.py",
    "evaluate/task.py": "a task's functions as types: evaluate/test_splits.py, evaluate/test_trivial.py",
    "registry/task.py": "a task's parts as types: registry/test_serving.py, registry/test_signature.py",
    "data/raw.py": "a record's type",
    "data/sources/source.py": "the type of a source: each source's own test",
    "evaluate/contents.py": "types of two files: evaluate/test_measure.py and evaluate/test_gate.py",
    "evaluate/fields.py": "odd values of measures.json: evaluate/test_gate.py",
    "evaluate/limits.py": "the rules on size and latency: evaluate/test_gate.py",
    "evaluate/plots.py": "pictures of the report: evaluate/test_report.py",
    "tasks/causal_lm.py": "tasks/test_protocols.py, data/test_prepare.py, registry/test_serving.py",
    "tasks/image_classification.py": "tasks/test_protocols.py, data/test_prepare.py, registry/test_serving.py",
    "train/profile.py": "types of a profile: steps/test_profiles.py",
    "jobs/heartbeat.py": "the content of a heartbeat: agent/test_heartbeat.py writes it",
    "evaluate/quality.py": "evaluate/test_gate.py",
    "evaluate/resampling.py": "evaluate/test_statistics.py",
    "evaluate/worst_answers.py": "evaluate/test_generated_answers.py",
    "jobs/outcome.py": "agent/test_worker.py writes outcomes, launch/local/test_launcher.py reads them",
    "launch/kubernetes/actions.py": "launch/kubernetes/test_controller.py and test_fault_table.py see the actions",
    "launch/kubernetes/decisions.py": "types of decisions",
    "launch/kubernetes/diagnosis.py": "the list of rules: launch/kubernetes/test_fault_table.py goes through it",
    "launch/kubernetes/evidence.py": "launch/kubernetes/test_fault_table.py",
    "launch/kubernetes/job.py": "one job: launch/kubernetes/test_controller.py",
    "kube/kind.py": "two constants",
    "kube/timeouts.py": "how long is waited: launch/kubernetes/test_fault_table.py",
    "launch/kubernetes/platform.py": "launch/test_platform.py asks both platforms the same questions",
    "launch/kubernetes/rendering/pod_security.py": "a constant: launch/kubernetes/rendering/test_pod.py",
    "launch/kubernetes/preflight.py": "launch/kubernetes/test_launcher.py",
    "launch/kubernetes/rules/ending.py": "launch/kubernetes/test_fault_table.py",
    "launch/kubernetes/status.py": "a type; launch/kubernetes/test_observation.py makes it",
    "launch/local/device.py": "launch/test_platform.py",
    "launch/local/platform.py": "launch/test_platform.py asks both platforms the same questions",
    "launch/local/torchrun.py": "runs in a process of its own: launch/local/test_launcher.py",
    "models/adapter_files.py": "models/test_adapters.py, where peft reads them",
    "models/describe.py": "models/test_build.py",
    "models/files.py": "models/test_pretrained.py and registry/test_serving.py",
    "models/hub.py": "asks the network; models/test_pretrained.py stands in for it",
    "models/outputs.py": "a type: models/test_build.py",
    "models/pretrained_files.py": "models/test_pretrained.py",
    "models/remote_code.py": "models/test_pretrained.py",
    "models/size.py": "evaluate/test_measure.py",
    "recipe/data.py": "recipe/test_schema.py",
    "recipe/errors.py": "recipe/test_file.py",
    "recipe/lora.py": "recipe/test_file.py",
    "recipe/models.py": "recipe/test_schema.py",
    "recipe/precision_rules.py": "recipe/test_file.py",
    "objectives/batch.py": "a batch's type: objectives/test_pieces.py",
    "objectives/distributions.py": "objectives/test_position_laws.py, and each objective's test against numpy",
    "objectives/labels.py": "objectives/test_objective.py",
    "objectives/logits.py": "objectives/test_objective.py",
    "recipe/roles.py": "constants: test_graph.py",
    "recipe/rules.py": "recipe/test_schema.py",
    "recipe/training_rules.py": "recipe/test_schema.py",
    "recipe/section.py": "the rules for all sections: recipe/test_schema.py",
    "recipe/yaml.py": "recipe/test_file.py",
    "registry/foreign.py": "registry/steps/test_foreign.py asks a real one",
    "registry/evidence.py": "registry/test_register.py",
    "registry/names.py": "constants",
    "registry/submission.py": "a type: registry/test_register.py",
    "registry/logged_runs.py": "registry/test_register.py reads them from a server",
    "registry/new_version.py": "registry/test_register.py and registry/test_model_upload.py",
    "registry/mlflow_auth.py": "server/test_sign_in.py signs in with it",
    "registry/middleware/allowlist.py": "server/test_allowlist.py compares it with every route of the server",
    "registry/middleware/body_limit.py": "server/test_body_limit.py, with accounts and without a server",
    "registry/over_mlflow.py": "registry/test_tracking.py asks it and over_rest the same questions",
    "registry/over_rest.py": "registry/test_tracking.py",
    "registry/loaded.py": "a version's predictions, in another process: steps/test_served.py",
    "registry/pyfunc.py": "registry/test_serving.py",
    "steps/arrays.py": "invalid archives of arrays: steps/test_measures.py",
    "steps/evaluate.py": "steps/test_keys.py; its work: steps/test_results.py and steps/test_measures.py",
    "steps/evidence.py": "steps/test_keys.py, and evaluate/test_report.py shows it",
    "steps/identity.py": "steps/test_keys.py",
    "steps/ingest.py": "steps/test_summary.py runs it; its key: steps/test_keys.py",
    "steps/pretrained_config.py": "steps/test_recipe_check.py",
    "steps/step.py": "steps/test_keys.py and steps/test_execution.py",
    "parallel/checkpoint_files.py": "contents and failures: parallel/test_checkpoint.py",
    "parallel/savers.py": "their order: train/test_savers.py",
    "parallel/pipeline.py": "train/test_pipelined.py, under every schedule",
    "plan/hardware.py": "cli/test_plan.py",
    "plan/job.py": "cli/test_plan.py",
    "train/learning.py": "train/test_parity.py",
    "train/staged.py": "train/test_pipelined.py",
    "train/models.py": "train/test_hidden_states.py and train/test_parity.py",
    "train/descriptions.py": "train/test_parity.py and train/test_batches.py",
    "train/frozen_teachers.py": "train/test_several_teachers.py and models/test_eight_bits.py",
    "train/later_models.py": "train/test_batches.py, train/test_naming.py and train/test_measured.py",
    "train/resources.py": "a type",
    "jobs/trainings.py": "steps/test_job_spec.py and plan/test_trace.py, which read the settings",
    "train/job.py": "train/test_parity.py and train/test_resume.py",
    "train/reports.py": "agent's and pipeline's tests of reports",
    "train/loop.py": "train/test_parity.py and train/test_resume.py",
    "train/curve.py": "train/test_parity.py, and train/test_guard.py for its marks",
    "train/training.py": "types of a training: train/test_parity.py",
    "recipe/training.py": "recipe/test_schema.py",
    "recipe/teacher_weight_rules.py": "recipe/test_learners.py",
    "teachers/cache/verification.py": "steps/test_logits.py",
    "recipe/logits.py": "sections: recipe/test_logit_rules.py",
}


def modules() -> list[str]:
    """The package's modules that hold code; an __init__ that only re-exports holds none."""
    paths = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]
    return [str(path) for path in paths if path.name != "__init__.py"]


def mirrors(name: Path | str) -> list[Path]:
    """Where a test of that name may lie; names in the folders of registries and clusters leave out the folder."""
    path = Path(name)
    return [folder / (path.relative_to(folder.name) if path.parts[0] == folder.name else path) for folder in FOLDERS]


def mirrored(module: str) -> bool:
    path = Path(module)
    return any(test.exists() for test in mirrors(path.with_name(f"test_{path.name}")))


def test_every_module_has_the_test_that_mirrors_it_or_a_reason() -> None:
    alone = {module for module in modules() if not mirrored(module)}
    assert alone - WITHOUT.keys() == set(), "write the test that mirrors it, or name it in WITHOUT with the reason"
    assert WITHOUT.keys() - alone == set(), "it is gone or has its test; take it out of WITHOUT"


def test_every_module_of_the_server_has_its_test() -> None:
    names = {path.name for path in SERVER.glob("*.py")} - {"__init__.py"}
    assert {name for name in names if not (Path("tests/server") / f"test_{name}").exists()} == set()


def test_every_test_that_a_reason_names_is_there() -> None:
    for module, reason in WITHOUT.items():
        named = [word.strip(".,;:") for word in reason.split() if word.strip(".,;:").endswith(".py")]
        folders = [Path(name).parent for name in named if "/" in name]
        for name in named:
            paths = [folder / Path(name).name for folder in [Path(name).parent, *folders]]
            assert any(test.exists() for path in paths for test in mirrors(path)), module


def test_packages_only_re_export() -> None:
    """The command line's own is its entry point, which the installed script calls."""
    for path in [*PACKAGE.rglob("__init__.py"), SERVER / "__init__.py"]:
        nodes = {type(node) for node in ast.parse(path.read_text()).body}
        assert path.parent.name == "cli" or nodes <= {ast.Expr, ast.ImportFrom, ast.Assign}, path
