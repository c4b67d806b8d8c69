"""How the page looks: two tabs and what a visitor has to know, in Gradio's words."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from faceanon.pipeline.photo import Pipeline
from faceanon.web.desk import MOST_CHARACTERS, OWN, Desk, Reply
from faceanon.web.strength import Level, judge_password, price

STYLE = Path(__file__).with_name("page.css")
FORGET_SECONDS = 600
FILLED: Mapping[Level, int] = {"very weak": 1, "weak": 2, "fair": 3, "strong": 4}
LABELS = {"blur": "Blur, for good", "pixelate": "Pixels, for good", "mask": "Grey patch, for good"}
NOTES = {
    "Pseudonyms, not anonymity": (
        "Whoever has the picture, the model and the password gets the faces back. That is pseudonymization: as long as "
        "somebody knows the password, laws such as the GDPR still see personal data. Clothes, places and tattoos stay "
        "in the picture."
    ),
    "Keep the file as it is": (
        "The PNG carries what recovery needs in addition to the password: where the faces are, the salt, the model's "
        "name and hash, and the codes of a model that has them. Cropping it, scaling it, or a messenger that saves it "
        "anew loses that."
    ),
    "What happens to your pictures": (
        "They go to the computer that runs this page and nowhere else, and are deleted after {minutes} minutes or when "
        "the page ends. Passwords are used and forgotten: no log, no file."
    ),
}
SILENT_NOTE = {
    "A wrong password gives no error": (
        "It draws yet another stranger. Nothing in the file says which password is right, and this page cannot tell "
        "either. A password that is lost cannot be had back from anywhere."
    ),
}
SEALED_NOTE = {
    "A wrong password is refused": (
        "The picture does not show the people; a code in the file brings them back, encrypted under the password. "
        "Whoever tries passwords is told whether one fits. A password that is lost cannot be had back from anywhere."
    ),
}


@dataclass(frozen=True)
class Look:
    """What the page says besides its fixed texts.

    Args:
        rate: Guesses a second of this machine; see `strength.guess_rate`.
        upload: Largest file, for people.
        examples: Pictures to click on.
    """

    rate: float
    upload: str
    examples: Sequence[Path] = ()


def build_page(desk: Desk, look: Look) -> gr.Blocks:
    """The page, not yet served; nothing in it writes or fetches anything by itself."""
    # `delete_cache`: how often Gradio looks, and from which age on it deletes, in seconds.
    page = gr.Blocks(title="faceanon", analytics_enabled=False, delete_cache=(60, FORGET_SECONDS))
    with page:
        gr.HTML(_header(desk.pipelines[OWN]), padding=False)
        with gr.Tabs() as tabs:
            with gr.Tab("1. Anonymize", id="anonymize"):
                hidden, onward = _anonymize_tab(desk, look)
            with gr.Tab("2. Recover", id="recover"):
                source = _recover_tab(desk, look)
        gr.HTML(_notes(desk.pipelines[OWN]), padding=False)
        onward.click(
            lambda file: (file, gr.Tabs(selected="recover")),
            hidden,
            [source, tabs],
            show_progress="hidden",
            api_visibility="private",
        )
    return page


def theme() -> gr.themes.Base:
    """Colours and the system's own fonts: nothing is fetched."""
    sans = ["system-ui", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
    return gr.themes.Soft(primary_hue="teal", neutral_hue="slate", font=sans, font_mono=["ui-monospace", "monospace"])


def show_strength(password: str | None, rate: float) -> str:
    """The hint under a password field, HTML; nothing of the password is in it."""
    if not password:
        return f'<div class="fa-strength"><p>{html.escape(price(rate))}</p></div>'
    strength = judge_password(password, rate)
    steps = []
    for step in range(len(FILLED)):
        steps.append(f'<i class="{"on" if step < FILLED[strength.level] else ""}"></i>')
    bars = "".join(steps)
    kind = strength.level.replace(" ", "-")
    line = f"{html.escape(strength.describe())} {html.escape(price(rate))}"
    return f'<div class="fa-strength {kind}"><span>{bars}</span><p>{line}</p></div>'


def _anonymize_tab(desk: Desk, look: Look) -> tuple[gr.Image, gr.Button]:
    with gr.Row(equal_height=False):
        with gr.Column():
            photo = _picture("Photo", f"Drop a photo here, or click\n(up to {look.upload})", "anonymize-photo")
            if look.examples:
                files = [[str(path)] for path in look.examples]
                gr.Examples(
                    files, photo, label="No photo at hand? Click on people who do not exist", api_visibility="private"
                )
            password = _password("Password", "A sentence that nobody can guess", "anonymize-password", "new-password")
            hint = gr.HTML(show_strength("", look.rate), padding=False, elem_id="anonymize-strength")
            with gr.Accordion("Another method", open=False):
                choices = []
                for key, other in desk.pipelines.items():
                    choices.append((_label(key, other), key))
                method = gr.Radio(choices, value=OWN, show_label=False, container=False, elem_id="anonymize-method")
            button = gr.Button("Anonymize", variant="primary", elem_id="anonymize-go")
        with gr.Column():
            result, line, download = _results("Anonymized", "anonymize")
            onward = gr.Button("Try to recover it", visible=False, elem_id="anonymize-onward")
    _judge_as_typed(password, hint, look.rate)

    # Gradio fills in the request by its annotation; it is no input of the page.
    def work(file: str | None, word: str | None, name: str, request: gr.Request) -> tuple[Any, ...]:
        reply = desk.anonymize(file, word or "", name, _client(request))
        back = reply.file is not None and desk.pipelines[name].method.reversible
        return (*_shown(reply), gr.Button(visible=back))

    _run_on([button.click, password.submit], work, [photo, password, method], [result, line, download, onward])
    return result, onward


def _judge_as_typed(password: gr.Textbox, hint: gr.HTML, rate: float) -> None:
    password.change(  # `input` misses what is pasted or filled in
        partial(show_strength, rate=rate),
        password,
        hint,
        trigger_mode="always_last",
        show_progress="hidden",
        # Past the queue: the hint must not wait until the model is done with somebody's picture.
        queue=False,
        api_visibility="private",
    )


def _recover_tab(desk: Desk, look: Look) -> gr.Image:
    with gr.Row(equal_height=False):
        with gr.Column():
            photo = _picture("Anonymized picture", "Drop the PNG from the first tab here", "recover-photo")
            password = _password("Password", "The one it was anonymized with", "recover-password", "off")
            button = gr.Button("Recover", variant="primary", elem_id="recover-go")
        with gr.Column():
            result, line, download = _results("Recovered", "recover")

    def work(file: str | None, word: str | None, request: gr.Request) -> tuple[Any, ...]:
        return _shown(desk.recover(file, word or "", _client(request)))

    _run_on([button.click, password.submit], work, [photo, password], [result, line, download])
    return photo


def _picture(label: str, invitation: str, name: str) -> gr.Image:
    """A place to drop a file, which reaches the handlers as it is: Gradio would decode it and lose the manifest."""
    gr.HTML(f'<h2 class="fa-step">{label}</h2>', padding=False)
    picture = gr.Image(
        label=label,
        show_label=False,
        placeholder=invitation,
        sources=["upload"],
        type="filepath",
        image_mode=None,
        height=300,
        buttons=[],
        elem_id=name,
    )
    return _as_it_is(picture)


def _as_it_is(picture: gr.Image) -> gr.Image:
    """Hand over uploads as the files they are; an address, which Gradio would fetch for a visitor, is refused."""
    keep = picture.async_move_resource_to_block_cache

    async def kept(path: str | Path | None) -> str | None:
        if path is not None and "://" in str(path):
            raise gr.Error("this page fetches nothing; choose a file", print_exception=False)
        return await keep(path)

    # On the object, where they hide the class's own methods, which Gradio calls by these names.
    vars(picture).update(preprocess=_path_of, async_move_resource_to_block_cache=kept)
    return picture


def _path_of(payload: gr.data_classes.FileData | None) -> str | None:
    return None if payload is None else payload.path


def _password(label: str, invitation: str, name: str, autocomplete: str) -> gr.Textbox:
    return gr.Textbox(
        label=label,
        placeholder=invitation,
        type="password",
        max_length=MOST_CHARACTERS,
        elem_id=name,
        html_attributes=gr.InputHTMLAttributes(autocomplete=autocomplete, spellcheck=False, enterkeyhint="go"),
    )


def _results(label: str, name: str) -> tuple[gr.Image, gr.HTML, gr.DownloadButton]:
    gr.HTML(f'<h2 class="fa-step">{label}</h2>', padding=False)
    result = gr.Image(
        label=label,
        show_label=False,
        type="filepath",
        interactive=False,
        height=300,
        buttons=["fullscreen"],
        elem_id=f"{name}-result",
    )
    line = gr.HTML(_line("The result appears here.", "idle"), padding=False, elem_id=f"{name}-line")
    return _as_it_is(result), line, gr.DownloadButton("Download", visible=False, elem_id=f"{name}-download")


def _run_on(
    events: Sequence[Callable[..., Any]], work: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> None:
    """One at a time, over all visitors: a second network at work would only slow down the first."""
    gr.on(
        events,
        work,
        list(inputs),
        list(outputs),
        concurrency_id="model",
        concurrency_limit=1,
        show_progress="minimal",
        show_progress_on=[outputs[0]],
        trigger_mode="once",
        api_visibility="private",
    )


def _shown(reply: Reply) -> tuple[Any, ...]:
    """Values for picture, line and download."""
    if reply.file is None:
        return None, _line(reply.line, "failed"), gr.DownloadButton(visible=False)
    button = gr.DownloadButton(f"Download {reply.file.name}", value=str(reply.file), visible=True)
    return str(reply.file), _line(reply.line, "done"), button


def _client(request: gr.Request) -> str:
    return request.client.host if request.client is not None else "unknown"


def _label(name: str, pipeline: Pipeline) -> str:
    if name != OWN:
        return LABELS[name]
    return f"A stranger's face, {'brought back by the password' if pipeline.method.reversible else 'for good'}"


def _line(text: str, kind: str) -> str:
    return f'<p class="fa-line {kind}" role="status">{html.escape(text)}</p>'


def _header(pipeline: Pipeline) -> str:
    sizes = " or ".join(map(str, pipeline.method.face_sizes))
    about = f"Model: <b>{html.escape(pipeline.name)}</b>, faces of {sizes} px."
    return (
        '<header class="fa-head"><h1>faceanon</h1><p>Every face becomes a stranger\'s. The password, and nothing '
        "else, brings the person back.</p>"
        f'<p class="fa-model">{about}</p></header>'
    )


def _notes(pipeline: Pipeline) -> str:
    notes = NOTES | (SEALED_NOTE if pipeline.method.sealed else SILENT_NOTE)
    sections = []
    for title, text in notes.items():
        sections.append(f"<section><h3>{title}</h3><p>{text}</p></section>")
    cards = "".join(sections)
    return f'<div class="fa-notes">{cards.format(minutes=FORGET_SECONDS // 60)}</div>'
