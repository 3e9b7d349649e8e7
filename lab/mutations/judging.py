"""What is believed of an arm, and what is said of it."""

from __future__ import annotations

from .mutation import Mutation

RESTART = "tests/race/test_restart.py"
VERIFICATION = "tests/worker/test_verification.py"
WIRING = "tests/race/test_wiring.py"
STATISTICS = tuple(f"tests/stats/test_{name}.py" for name in ("evidence", "goals", "leaders", "paired", "error_rates"))
ANALYSIS = ("tests/results/test_analysis.py", "tests/results/test_choice.py", "tests/race/test_drills.py")

MUTATIONS = (
    Mutation(
        "every input buffer is verified in the worker",
        "harness/worker/verification.py",
        "for slot, inputs in enumerate(claim.buffers)]",
        "for slot, inputs in enumerate([claim.buffers[0]] * len(claim.buffers))]",
        (VERIFICATION, WIRING),
    ),
    Mutation(
        "the worst buffer gives the error",
        "harness/exported/fidelity.py",
        "        worst = max(worst, error)",
        "        worst = error",
        (VERIFICATION, "tests/exported/test_fidelity.py"),
    ),
    Mutation(
        "the shared model's own outputs are compared with",
        "harness/worker/verification.py",
        "fidelity.with_shared(banded, outputs, reference) if reference else banded",
        "with_bound",
        (VERIFICATION, WIRING),
    ),
    Mutation(
        "the maximum of memory over restarts is reported",
        "harness/results/footprint.py",
        "peak = max(",
        "peak = min(",
        ("tests/results/test_footprint.py",),
    ),
    Mutation(
        "a ratio is the median over rounds",
        "harness/stats/verdicts.py",
        "g: median(np.log(arm[g] / baseline[g]))",
        "g: float(np.mean(np.log(arm[g] / baseline[g])))",
        (*STATISTICS,),
    ),
    Mutation(
        "a verdict is outside the bias floor",
        "harness/stats/verdicts.py",
        "    if low > floor:\n        return Verdict.SLOWER",
        "    if low > 0:\n        return Verdict.SLOWER",
        (*STATISTICS,),
    ),
    Mutation(
        "the control's distance widens the bias floor",
        "harness/stats/verdicts.py",
        "bias_floor=max(rules.bias_floor, seen))",
        "bias_floor=rules.bias_floor)",
        (
            *STATISTICS,
            RESTART,
            "tests/race/test_stopping.py",
        ),
    ),
    Mutation(
        "the error probability is shared over a group's comparisons",
        "harness/stats/verdicts.py",
        "alpha=bonferroni(rules.comparisons),\n        bias_floor=rules",
        "alpha=bonferroni(1),\n        bias_floor=rules",
        (
            *STATISTICS,
            "tests/race/test_stopping.py",
        ),
    ),
    Mutation(
        "a wild pair loses the prior",
        "harness/stats/verdicts.py",
        "prior = prior and bool(own_holds(x)[-1])",
        "prior = bool(prior)",
        (*STATISTICS,),
    ),
    Mutation(
        "a wild group loses the prior",
        "harness/stats/verdicts.py",
        "Ground(prior=_prior(played, rules.baseline),",
        "Ground(prior=True,",
        (
            *STATISTICS,
            "tests/race/test_stopping.py",
        ),
    ),
    Mutation(
        "one restart gives no interval",
        "harness/stats/evidence.py",
        "    if x.size < LEAST_RESTARTS or ceiling",
        "    if ceiling",
        (*STATISTICS,),
    ),
    Mutation(
        "a control that came out different withholds verdicts",
        "harness/journal/group.py",
        "if copy_holds(group, copy) is False else None",
        "if False else None",
        (*ANALYSIS,),
    ),
    Mutation(
        "a control that failed withholds verdicts",
        "harness/journal/group.py",
        "    if why := _gone(group, group.rules.control):",
        '    if why := _gone(group, "nobody"):',
        (*ANALYSIS,),
    ),
    Mutation(
        "an arm without a steady state gets no verdict",
        "harness/journal/group.py",
        "    if is_unsteady(starts):\n        return f",
        "    if False:\n        return f",
        (*ANALYSIS,),
    ),
    Mutation(
        "a restart's flagged blocks do not count in the analysis",
        "harness/journal/group.py",
        "counted(line.block_median_ns.get(scope, ()), line.flagged)",
        "counted(line.block_median_ns.get(scope, ()), ())",
        (*ANALYSIS,),
    ),
    Mutation(
        "a race ends only after the fewest restarts that can tell",
        "harness/race/stopping.py",
        "    if now.played < max(min_restarts(now.rules.comparisons), now.rules.least_restarts):",
        "    if now.played < 1:",
        ("tests/race/test_stopping.py",),
    ),
    Mutation(
        "the account of what ran is judged",
        "harness/worker/verification.py",
        "    return executed_fault(evidence.executed, evidence.claim.arm)",
        "    return None",
        (VERIFICATION,),
    ),
    Mutation(
        "outputs in NaN are refused",
        "harness/exported/fidelity.py",
        "    if found.relative_l2 is None:\n        overflow",
        "    if False:\n        overflow",
        (
            VERIFICATION,
            "tests/exported/test_fidelity.py",
        ),
    ),
    Mutation(
        "integer outputs that differ are refused",
        "harness/exported/fidelity.py",
        "    if found.mismatches and is_judged:\n",
        "    if False:\n",
        (
            VERIFICATION,
            "tests/exported/test_fidelity.py",
        ),
    ),
    Mutation(
        "too small an error under a quantized label is refused",
        "harness/exported/fidelity.py",
        "    if least and found.relative_l2 <= least:",
        "    if False:",
        (
            VERIFICATION,
            "tests/exported/test_fidelity.py",
        ),
    ),
)
