"""How the page looks: two tabs and what a visitor has to know, in Gradio's words."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
from gradio_image_annotation import image_annotator

from faceanon.errors import UserError
from faceanon.pipeline.photo import Pipeline
from faceanon.web.desk import MOST_CHARACTERS, OWN, Desk, Reply
from faceanon.web.film import NEW, ReviewedFilm
from faceanon.web.review import COLOURS, LABELS, Review, ReviewedPhoto, ScreenBox, as_lines, from_lines
from faceanon.web.strength import Level, judge_password, price

STYLE = Path(__file__).with_name("page.css")
FORGET_SECONDS = 3600  # looking through many photos takes time
FILLED: Mapping[Level, int] = {"very weak": 1, "weak": 2, "fair": 3, "strong": 4}
HOW = "Double-click a box to say what becomes of it. Keys: C draw, D move, E say, Delete remove, Space whole photo."
WRITTEN = "A line a box: left, top, right, bottom in pixels of the picture on the screen, and what the box is"
METHODS = {"blur": "Blur, for good", "pixelate": "Pixels, for good", "mask": "Grey patch, for good"}
NOTES = {
    "Pseudonyms, not anonymity": (
        "Whoever has the picture, the model and the password gets the faces back. That is pseudonymization: as long as "
        "somebody knows the password, laws such as the GDPR still see personal data. Clothes, places and tattoos stay "
        "in the picture."
    ),
    "Keep the file as it is": (
        "The file carries what recovery needs in addition to the password: where the faces are, the salt, the model's "
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
                made, onward = _anonymize_tab(desk, look)
            with gr.Tab("2. Recover", id="recover"):
                source = _recover_tab(desk, look)
        gr.HTML(_notes(desk.pipelines[OWN]), padding=False)
        onward.click(
            lambda file: (file, gr.Tabs(selected="recover")),
            made,
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


def _anonymize_tab(desk: Desk, look: Look) -> tuple[gr.State, gr.Button]:
    review = gr.State(None)
    with gr.Row(equal_height=False):
        with gr.Column(scale=3):
            table = _review_table(look)
        with gr.Column(scale=2):
            gr.HTML('<h2 class="fa-step">Hide</h2>', padding=False)
            password = _password("Password", "A sentence that nobody can guess", "anonymize-password", "new-password")
            hint = gr.HTML(show_strength("", look.rate), padding=False, elem_id="anonymize-strength")
            with gr.Accordion("Another method", open=False):
                choices = []
                for key, other in desk.pipelines.items():
                    choices.append((_label(key, other), key))
                method = gr.Radio(choices, value=OWN, show_label=False, container=False, elem_id="anonymize-method")
            button = gr.Button("Anonymize", variant="primary", elem_id="anonymize-go")
            result, line, download = _results("Anonymized", "anonymize")
            boxes = gr.DownloadButton("Download the boxes", visible=False, elem_id="anonymize-boxes-file")
            onward = gr.Button("Try to recover it", visible=False, elem_id="anonymize-onward")
    _judge_as_typed(password, hint, look.rate)
    _connect_table(desk, look, table, review)

    # Gradio fills in the request by its annotation; it is no input of the page.
    def work(request: gr.Request, word: str | None, name: str, current: Review | None, *left: Any) -> tuple[Any, ...]:  # noqa: ANN401
        _keep(current, *left)
        reply = desk.anonymize(current, word or "", name, _client(request))
        back = reply.file is not None and desk.pipelines[name].method.reversible
        decided = gr.DownloadButton(value=reply.boxes and str(reply.boxes), visible=reply.boxes is not None)
        return (*_shown(reply), decided, gr.Button(visible=back), reply.file and str(reply.file))

    inputs = [password, method, review, *table.left]
    made = gr.State(None)
    _run_on([button.click, password.submit], work, inputs, [result, line, download, boxes, onward, made])
    return made, onward


@dataclass(frozen=True)
class _ReviewTable:
    """The components around what is under review."""

    files: gr.File
    example: gr.Button
    photo: gr.Column
    boxes: Any
    film: gr.Column
    frame_boxes: Any
    time: gr.Slider
    people: gr.CheckboxGroup
    others: gr.CheckboxGroup
    timeline: gr.HTML
    by_keys: gr.Accordion
    written: gr.Textbox
    apply: gr.Button
    line: gr.HTML
    steps: gr.Row
    back: gr.Button
    place: gr.HTML
    on: gr.Button
    seen: gr.Checkbox

    @property
    def left(self) -> list[Any]:
        """What holds what the visitor has done: the values that `_keep` takes."""
        return [self.boxes, self.frame_boxes, self.people, self.others, self.seen]

    @property
    def shown(self) -> list[Any]:
        """What changes when something else comes under review."""
        film = [self.film, self.frame_boxes, self.time, self.people, self.others, self.timeline]
        return [self.photo, self.boxes, *film, self.written, self.line, self.steps, self.place, self.seen]


def _review_table(look: Look) -> _ReviewTable:
    gr.HTML('<h2 class="fa-step">Look</h2>', padding=False)
    files = gr.File(
        label=f"Photos and films up to {look.upload}, a file of boxes",
        file_count="multiple",
        file_types=["image", "video", ".heic", ".heif", ".avif", ".mkv", ".json"],
        height=120,
        elem_id="anonymize-photo",
    )
    example = gr.Button("No photo at hand? Take people who do not exist", size="sm", elem_id="anonymize-example")
    # The columns are hidden, not the components: one that is told anything but a value is built anew.
    with gr.Column(visible=False) as photo:
        boxes = _box_drawer(list(LABELS), [COLOURS[choice] for choice, _ in LABELS.values()], "anonymize-boxes")
        gr.HTML(f'<p class="fa-place">{HOW}</p>', padding=False)
    with gr.Column(visible=False) as film:
        frame_boxes = _box_drawer(list(NEW), [COLOURS["stranger"]] * len(NEW), "anonymize-frame-boxes")
        time = gr.Slider(0, 1, 0, step=1, label="Frame", elem_id="anonymize-time")
        people = gr.CheckboxGroup(label="Hidden; whose tick is off stays as they are", elem_id="anonymize-people")
        others = gr.CheckboxGroup(label="Another stranger of the password", elem_id="anonymize-others")
        timeline = gr.HTML("", padding=False, elem_id="anonymize-timeline")
    with gr.Accordion("The boxes as numbers, for the keyboard", open=False, elem_id="anonymize-by-keys") as by_keys:
        written = gr.Textbox(label=WRITTEN, lines=3, elem_id="anonymize-written")
        apply = gr.Button("Put these boxes on the picture", size="sm", elem_id="anonymize-apply")
    line = gr.HTML(_line("What you drop appears here, with a box for each face.", "idle"), padding=False)
    with gr.Row(visible=False) as steps:
        back = gr.Button("Previous", size="sm", elem_id="anonymize-back")
        place = gr.HTML("", padding=False, elem_id="anonymize-place")
        on = gr.Button("Next", size="sm", elem_id="anonymize-next")
    seen = gr.Checkbox(label="I have looked at all of it: nobody is missing", visible=False, elem_id="anonymize-seen")
    return _ReviewTable(
        _fetching_nothing(files),
        example,
        photo,
        boxes,
        film,
        frame_boxes,
        time,
        people,
        others,
        timeline,
        by_keys,
        written,
        apply,
        line,
        steps,
        back,
        place,
        on,
        seen,
    )


def _box_drawer(labels: list[str], colours: list[str], name: str) -> Any:  # noqa: ANN401 - the package has no types
    drawer = image_annotator(
        label_list=labels,
        label_colors=colours,
        boxes_alpha=0.15,
        sources=[],
        show_label=False,
        show_download_button=False,
        show_share_button=False,
        show_clear_button=False,
        show_remove_button=True,
        use_default_label=True,
        elem_id=name,
    )
    return _bare_boxes(drawer)


def _connect_table(desk: Desk, look: Look, table: _ReviewTable, review: gr.State) -> None:
    def opened(paths: list[str] | None, earlier: Review | None) -> tuple[Any, ...]:
        answer = desk.open(paths or [], earlier)
        if isinstance(answer, Review):
            return answer, *_review_shown(desk, answer)
        return None, *_nothing_shown(_line(answer.line, "failed" if paths else "idle"))

    def stepped(by: int, current: Review, *left: Any) -> tuple[Any, ...]:  # noqa: ANN401
        _keep(current, *left)
        current.step(by)
        return current, *_review_shown(desk, current)

    def moved(frame: int, current: Review, *left: Any) -> tuple[Any, ...]:  # noqa: ANN401
        _keep(current, *left)
        if isinstance(current.current, ReviewedFilm):
            current.current.frame = frame
        return current, *_review_shown(desk, current)

    def read(current: Review | None, *left: Any) -> str:  # noqa: ANN401
        _keep(current, *left)
        return _written(current)

    def applied(text: str, current: Review | None, *left: Any) -> tuple[Any, ...]:  # noqa: ANN401
        _keep(current, *left)
        if current is None or current.current.failed:
            raise gr.Error("Choose a picture first.", print_exception=False)
        item = current.current
        try:
            drawn = from_lines(text, item.colours)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from error
        # Boxes, and who is hidden, as the components give them.
        _keep(current, drawn, drawn, *left[2:])
        return current, *_review_shown(desk, current)

    outputs = [review, *table.shown]
    table.by_keys.expand(read, [review, *table.left], table.written, show_progress="hidden", api_visibility="private")
    _run_on([table.apply.click], applied, [table.written, review, *table.left], outputs, show=table.line)
    _run_on([table.files.change], opened, [table.files, review], outputs, show=table.line)
    _run_on([table.on.click], partial(stepped, 1), [review, *table.left], outputs, show=table.line)
    _run_on([table.back.click], partial(stepped, -1), [review, *table.left], outputs, show=table.line)
    _run_on([table.time.input], moved, [table.time, review, *table.left], outputs, show=table.line, last=True)
    table.example.click(
        lambda: [str(path) for path in look.examples],
        None,
        table.files,
        show_progress="hidden",
        api_visibility="private",
    )


def _review_shown(desk: Desk, review: Review) -> tuple[Any, ...]:
    """Values for `_ReviewTable.shown`."""
    line, screen = desk.look(review)
    item = review.current
    count = len(review.photos)
    place = f'<p class="fa-place">{review.index + 1} of {count}: {html.escape(item.path.name)}</p>'
    photo: tuple[Any, ...] = (gr.Column(visible=False), None)
    film: tuple[Any, ...] = (gr.Column(visible=False), None, gr.skip(), gr.skip(), gr.skip(), "")
    if screen is not None and isinstance(item, ReviewedFilm):
        names = [person.name for person in item.people]
        hidden = [person.name for person in item.people if person.hidden]
        others = [person.name for person in item.people if person.stranger]
        film = (
            gr.Column(visible=True),
            {"image": screen, "boxes": item.boxes()},
            gr.Slider(maximum=max(1, item.frames - 1), value=item.frame),
            gr.CheckboxGroup(choices=names, value=hidden),
            gr.CheckboxGroup(choices=names, value=others),
            item.timeline(),
        )
    elif screen is not None and isinstance(item, ReviewedPhoto):
        photo = (gr.Column(visible=True), {"image": screen, "boxes": item.boxes})
    return (
        *photo,
        *film,
        _written(review),
        _line(line, "failed" if item.failed else "idle"),
        gr.Row(visible=count > 1),
        place,
        gr.Checkbox(value=item.seen or bool(item.failed), visible=True),
    )


def _written(review: Review | None) -> str:
    """The boxes of what is on the screen as text."""
    if review is None or review.current.failed:
        return ""
    item = review.current
    return as_lines(item.boxes() if isinstance(item, ReviewedFilm) else item.boxes)


def _nothing_shown(line: str) -> tuple[Any, ...]:
    """As `_review_shown`, of nothing."""
    gone = gr.Column(visible=False)
    seen = gr.Checkbox(value=False, visible=False)
    return gone, None, gone, None, gr.skip(), gr.skip(), gr.skip(), "", "", line, gr.Row(visible=False), "", seen


def _keep(
    review: Review | None,
    boxes: list[ScreenBox] | None,
    frame_boxes: list[ScreenBox] | None,
    people: list[str] | None,
    others: list[str] | None,
    seen: bool,
) -> None:
    """What the visitor made of what is on the screen."""
    if review is None:
        return
    item = review.current
    item.seen = seen
    drawn = frame_boxes if isinstance(item, ReviewedFilm) else boxes
    # None: the component has nothing to say, and nobody's box may go by that.
    if item.failed or drawn is None:
        return
    if isinstance(item, ReviewedFilm):
        item.keep(drawn, people or [], others or [])
    else:
        item.boxes = drawn


def _bare_boxes(component: Any) -> Any:  # noqa: ANN401 - the package has no types
    """Hand over boxes alone: the component would decode and save the photo anew at each event."""

    def boxes_of(payload: Any) -> list[ScreenBox] | None:  # noqa: ANN401
        if payload is None or payload.orientation:
            return None
        boxes: list[ScreenBox] = component.preprocess_boxes(payload.boxes)
        return boxes

    vars(component).update(preprocess=boxes_of)
    return _fetching_nothing(component)


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


def _recover_tab(desk: Desk, look: Look) -> gr.File:
    with gr.Row(equal_height=False):
        with gr.Column():
            gr.HTML('<h2 class="fa-step">Anonymized</h2>', padding=False)
            label = "The picture or the ZIP from the first tab"
            kinds = ["image", "video", ".zip"]
            photo = gr.File(label=label, file_types=kinds, height=120, elem_id="recover-photo")
            password = _password("Password", "The one it was anonymized with", "recover-password", "off")
            button = gr.Button("Recover", variant="primary", elem_id="recover-go")
        with gr.Column():
            result, line, download = _results("Recovered", "recover")

    def work(file: str | None, word: str | None, request: gr.Request) -> tuple[Any, ...]:
        return _shown(desk.recover(file, word or "", _client(request)))

    _run_on([button.click, password.submit], work, [photo, password], [result, line, download])
    return _fetching_nothing(photo)


C = TypeVar("C", bound=gr.components.Component)


def _fetching_nothing(component: C) -> C:
    """Refuse an address, which Gradio would fetch for a visitor."""
    keep = component.async_move_resource_to_block_cache

    async def kept(path: str | Path | None) -> str | None:
        if path is not None and "://" in str(path):
            raise gr.Error("this page fetches nothing; choose a file", print_exception=False)
        return await keep(path)

    vars(component).update(async_move_resource_to_block_cache=kept)
    return component


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
    return _fetching_nothing(result), line, gr.DownloadButton("Download", visible=False, elem_id=f"{name}-download")


def _run_on(
    events: Sequence[Callable[..., Any]],
    work: Callable[..., Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    show: gr.components.Component | None = None,
    last: bool = False,
) -> None:
    """One at a time, over all visitors: a second network at work would only slow down the first.

    Args:
        events: What starts the work.
        work: What is done.
        inputs: Its inputs.
        outputs: What it gives.
        show: Where it is to be seen that it works; at the first output when None.
        last: While it works, keep the last event for later; else none counts until it is done.
    """
    gr.on(
        events,
        work,
        list(inputs),
        list(outputs),
        concurrency_id="model",
        concurrency_limit=1,
        show_progress="minimal",
        show_progress_on=[show or outputs[0]],
        trigger_mode="always_last" if last else "once",
        api_visibility="private",
    )


def _shown(reply: Reply) -> tuple[Any, ...]:
    """Values for picture, line and download."""
    if reply.file is None:
        return None, _line(reply.line, "failed"), gr.DownloadButton(visible=False)
    button = gr.DownloadButton(f"Download {reply.file.name}", value=str(reply.file), visible=True)
    return str(reply.picture), _line(reply.line, "done"), button


def _client(request: gr.Request) -> str:
    return request.client.host if request.client is not None else "unknown"


def _label(name: str, pipeline: Pipeline) -> str:
    if name != OWN:
        return METHODS[name]
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
