"""Command line: parse, call one function, print. One module per command."""

import typer

from advisor.cli import catalog, compare, doctor, example_model, plan, profile, queue, schema, trace, verify

app = typer.Typer(
    name="advisor",
    help="Which machines, CPU or GPU, how many, at what cost, so that a trained model answers in time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("plan")(plan.plan)
app.command("doctor")(doctor.doctor)
app.command("profile")(profile.profile)
app.command("verify")(verify.verify_profile)
app.command("compare")(compare.compare_profiles)
app.command("example-model")(example_model.example_model)
app.command("catalog")(catalog.catalog)
app.command("queue")(queue.queue)
app.command("schema")(schema.schema)
app.command("trace")(trace.trace)
