"""The page of the explorer, a marimo notebook: a cell is run again when a control that it reads is moved."""

import marimo

app = marimo.App(width="full", app_title="AggMo explorer", css_file="page.css", html_head_file="page.html")

with app.setup:
    from html import escape

    import marimo as mo

    from aggmo.damping import Damping
    from aggmo.explore import stops
    from aggmo.explore.paths import LANDSCAPES, paths
    from aggmo.explore.poles import poles
    from aggmo.explore.presets import PRESETS
    from aggmo.explore.rates import rates
    from aggmo.explore.responses import responses
    from aggmo.explore.settings import MOST, RANGES, WHOLE, Settings, code, query, read, rival
    from aggmo.explore.trajectories import trajectories

    SHORT = {"classical": "CM", "nesterov": "Nesterov"}


@app.cell
def _():
    mo.Html(
        "<header><h1>AggMo, live</h1><p>Several velocities with dampings of their own, averaged into one step: "
        "v<sub>i</sub> ← β<sub>i</sub> v<sub>i</sub> − ∇f(θ), θ ← θ + lr · Σ w<sub>i</sub> v<sub>i</sub>. "
        "Every number is computed by <code>aggmo.theory</code> as a control moves.</p></header>"
    )


@app.cell
def _():
    problem = ""
    try:
        first = read(mo.query_params().to_dict())
    except ValueError as error:
        first, problem = Settings(), f"This link cannot be used; the page is as by default. {error}"
    # What is set now, for controls that are made anew. `base` changes when all of them have to be.
    now = {"settings": first}
    base, set_base = mo.state(first)
    return base, now, problem, set_base


@app.cell
def _(now, set_base):
    def _apply(name):
        if name:
            now["settings"] = PRESETS[name].settings
            set_base(PRESETS[name].settings)

    preset = mo.ui.dropdown(list(PRESETS), label="A figure of the paper", on_change=_apply, full_width=True)
    preset_html = preset.text
    return preset, preset_html


@app.cell
def _(base, now):
    base()
    _set = now["settings"]
    form = mo.ui.radio(
        {"exponential": "exponential", "β by hand": "hand"},
        value="exponential" if _set.betas is None else "β by hand",
        label="Damping vector",
        inline=True,
    )
    count = mo.ui.slider(1, MOST, 1, value=len(_set.damping), label="K, velocities", show_value=True, full_width=True)
    weighing = mo.ui.radio(
        {"1/K each": "equal", "w by hand": "hand"},
        value="1/K each" if _set.weights is None else "w by hand",
        label="Weights",
        inline=True,
    )
    form_html, count_html, weighing_html = form.text, count.text, weighing.text
    return count, count_html, form, form_html, weighing, weighing_html


@app.cell
def _(base, now):
    base()
    scale = mo.ui.slider(
        steps=stops.linear(*RANGES["a"], 18, now["settings"].a), value=now["settings"].a, label="a", show_value=True,
        full_width=True,
    )  # fmt: skip
    scale_html = scale.text
    return scale, scale_html


@app.cell
def _(base, count, form, now):
    base(), form.value
    _betas = [*now["settings"].damping.betas[: count.value]]
    while len(_betas) < count.value:  # one more velocity has a tenth of the last distance to 1
        _betas.append(round(min(1.0 - 0.1 * (1.0 - _betas[-1]), RANGES["beta"][1]), 8))
    betas = mo.ui.array(
        [
            mo.ui.slider(steps=stops.dampings(one), value=one, label=f"β {i}", show_value=True, full_width=True)
            for i, one in enumerate(_betas, start=1)
        ]
    )
    betas_html = "".join(one.text for one in betas)
    return betas, betas_html


@app.cell
def _(base, count, now, weighing):
    base(), weighing.value
    _old = now["settings"].damping.weights
    _weights = _old if len(_old) == count.value else (1.0 / count.value,) * count.value
    weights = mo.ui.array(
        [
            mo.ui.slider(
                steps=stops.linear(0.0, max(1.0, *_weights), 50, one), value=one, label=f"w {i}", show_value=True,
                full_width=True,
            )
            for i, one in enumerate(_weights, start=1)
        ]
    )  # fmt: skip
    weights_html = "".join(one.text for one in weights)
    return weights, weights_html


@app.cell
def _(base, now):
    base()
    _set = now["settings"]

    versus = mo.ui.dropdown(
        {"classical momentum": "classical", "Nesterov": "nesterov"},
        value={"classical": "classical momentum", "nesterov": "Nesterov"}[_set.versus],
        label="Comparison",
        allow_select_none=False,
    )
    beta = mo.ui.slider(
        steps=stops.dampings(_set.beta), value=_set.beta, label="its β", show_value=True, full_width=True
    )
    curvature, kappa, alpha, spread = (
        mo.ui.slider(
            steps=stops.geometric(*RANGES[name], getattr(_set, name)), value=float(getattr(_set, name)), label=label,
            show_value=True, full_width=True,
        )
        for name, label in (
            ("curvature", "λ, curvature"), ("kappa", "κ, condition number"), ("alpha", "α"), ("spread", "β of Beta"),
        )
    )  # fmt: skip
    steps = mo.ui.slider(
        steps=[int(one) for one in stops.geometric(*WHOLE["steps"], _set.steps)],
        value=_set.steps, label="steps", show_value=True, full_width=True,
    )  # fmt: skip
    landscape = mo.ui.dropdown(
        {one.name: key for key, one in LANDSCAPES.items()},
        value=LANDSCAPES[_set.landscape].name,
        label="Landscape",
        allow_select_none=False,
    )
    rest_html = [one.text for one in (versus, beta, curvature, kappa, steps, landscape, alpha, spread)]
    return alpha, beta, curvature, kappa, landscape, rest_html, spread, steps, versus


@app.cell
def _(base, landscape, now):
    base()
    _set, _shown = now["settings"], LANDSCAPES[landscape.value]
    # Another landscape comes with a start and a learning rate that suit it.
    _chosen = landscape.value == _set.landscape
    _lr, _start = (_set.lr, (_set.x, _set.y)) if _chosen else (_shown.lr, _shown.start)
    lr = mo.ui.slider(
        steps=stops.geometric(*RANGES["lr"], _lr), value=_lr, label="lr, learning rate", show_value=True,
        full_width=True,
    )  # fmt: skip
    x, y = (
        mo.ui.number(*RANGES[name], 0.01, value=value, label=f"start {name}")
        for name, value in zip(("x", "y"), _start, strict=True)
    )
    lr_html, start_html = lr.text, f'<div data-start="x">{x}</div><div data-start="y">{y}</div>'
    return lr, lr_html, start_html, x, y


@app.cell
def _(beta, versus):
    other, other_name = rival(versus.value, beta.value), f"{SHORT[versus.value]}, β = {beta.value:g}"
    return other, other_name


@app.cell
def _(betas, count, form, scale, weighing, weights):
    _error = ""
    _by_hand, _weighed = form.value == "hand", weighing.value == "hand"
    _betas = tuple(betas.value) if _by_hand else Damping.exponential(count.value, scale.value).betas
    try:
        damping = Damping(_betas, tuple(weights.value) if _weighed else None)
    except ValueError as error:
        _error = str(error)
    mo.stop(bool(_error), mo.Html(f'<p class="problem" role="alert">{escape(_error)}</p>'))
    chosen = {"betas": _betas if _by_hand else None, "weights": damping.weights if _weighed else None}
    chosen |= {"k": count.value, "a": scale.value}
    return chosen, damping


@app.cell
def _(
    alpha, beta, chosen, curvature, kappa, landscape, lr, now, problem, spread, steps, versus, x, y,
):  # fmt: skip
    settings = Settings(
        **chosen, lr=lr.value, versus=versus.value, beta=beta.value, curvature=curvature.value, kappa=kappa.value,
        steps=steps.value, landscape=landscape.value, x=x.value or 0.0, y=y.value or 0.0, alpha=alpha.value,
        spread=spread.value,
    )  # fmt: skip
    now["settings"] = settings
    _told = problem and settings == Settings()  # until something is chosen
    _problem = f'<p class="problem" role="alert">{escape(problem)}</p>' if _told else ""
    _line, _link = escape(code(settings)), escape(query(settings))
    mo.Html(
        f'{_problem}<div class="carry" data-versus="{versus.value}" data-link="{_link}"><code>{_line}</code>'
        f'<button type="button" data-copy="{_line}">Copy the PyTorch line</button>'
        '<button type="button" data-copy-link="">Copy a link to this page</button></div>'
    )


@app.cell
def _(
    betas_html, count_html, form, form_html, lr_html, preset, preset_html, rest_html, scale_html, start_html,
    weighing, weighing_html, weights_html,
):  # fmt: skip
    _versus, _beta, _curvature, _kappa, _steps, _landscape, _alpha, _spread = rest_html
    _groups = {
        "Preset": [preset_html, f'<p class="hint">{escape(PRESETS[preset.value].note)}</p>' if preset.value else ""],
        "AggMo": [
            form_html, count_html, betas_html if form.value == "hand" else scale_html,
            weighing_html, weights_html if weighing.value == "hand" else "", lr_html,
        ],
        "Beside it": [_versus, _beta],
        "Where to look": [_curvature, _kappa, _steps],
        "Landscape": [_landscape, f'<div class="start">{start_html}</div>'],
        "Beta average": [_alpha, _spread],
    }  # fmt: skip
    mo.Html(
        '<div class="panel" role="group" aria-label="Controls">'
        + "".join(f"<fieldset><legend>{name}</legend>{''.join(parts)}</fieldset>" for name, parts in _groups.items())
        + "</div>"
    )


@app.cell
def _(curvature, damping, lr, other, other_name, steps):
    mo.Html(trajectories(damping, other, other_name, lr.value, curvature.value, steps.value).html())


@app.cell
def _(damping, kappa, lr, other, other_name):
    mo.Html(rates(damping, other, other_name, lr.value, kappa.value).html())


@app.cell
def _(curvature, damping, lr, other, other_name):
    mo.Html(poles(damping, other, other_name, lr.value * curvature.value).html())


@app.cell
def _(beta, damping, landscape, lr, steps, x, y):
    mo.Html(paths(damping, beta.value, landscape.value, x.value or 0.0, y.value or 0.0, lr.value, steps.value).html())


@app.cell
def _(alpha, damping, other, other_name, spread):
    mo.Html(responses(damping, other, other_name, alpha.value, spread.value).html())


if __name__ == "__main__":
    app.run()
