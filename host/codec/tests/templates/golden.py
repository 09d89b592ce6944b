"""What transformers makes of the templates beside this file, as JSON: the goldens of `tests/templates.rs`.

`golden.py` writes `goldens.json`; `golden.py --print` only prints it, and `golden.py --print FOLDER` prints what becomes of the
families in another folder. The renderer is transformers' own, with the clock stopped.
"""

import datetime
import json
import os
import pathlib
import re
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import jinja2
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
# Friday, 26 July 2024, 09:05:07 UTC.
NOW = 1721984707
# Where templates look for the assistant's thoughts, the usual place first.
REASONING = ["reasoning_content", "thinking", "reasoning"]
# Families that read a message's parts one by one, of these the families that have a place for images, and those that can read
# nothing else. Written down from reading them: what the codec finds out by itself is held against this.
READS_PARTS = set(
    "dump gemma3 glm45 glm4v kimi_k2 llama32_vision llama4 llava mistral_small3 qwen2_vl smolvlm".split()
)
READS_IMAGES = READS_PARTS - {"glm45", "kimi_k2"}
ONLY_PARTS = {"llava", "smolvlm"}


class Stopped(datetime.datetime):
    """A clock that stands still, without a time zone as transformers' is."""

    @classmethod
    def now(cls):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


chat_template_utils.datetime = Stopped


def content(given, family):
    """What a message says as the family's template can read it."""
    if isinstance(given, str) and family in ONLY_PARTS:
        return [{"type": "text", "text": given}]
    if not isinstance(given, list):
        return given
    if any(part["type"] != "text" for part in given) and family not in READS_IMAGES:
        raise LookupError("no place for images")
    return given if family in READS_PARTS else "".join(part["text"] for part in given)


def message(given, source, family):
    """A message as templates see it; fields that are not given are not there."""
    seen = {"role": given["role"], "content": content(given["content"], family)}
    if "name" in given:
        seen["name"] = given["name"]
    if "reasoning_content" in given:
        seen["reasoning_content"] = given["reasoning_content"]
        looks = lambda name: re.search(r"\.%s\b|['\"]%s['\"]" % (name, name), source)
        # transformers fills the first two out of any.
        if not any(map(looks, REASONING[:2])) and looks("reasoning"):
            seen["reasoning"] = given["reasoning_content"]
    if "tool_calls" in given:
        seen["tool_calls"] = [
            ({"id": call["id"]} if call["id"] else {})
            | {"type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in given["tool_calls"]
        ]
    if "tool_call_id" in given:
        seen["tool_call_id"] = given["tool_call_id"]
    return seen


def render(source, chat, family=""):
    try:
        messages = [message(given, source, family) for given in chat["messages"]]
    except LookupError:
        return {"no_images": True}
    ending = chat.get("ending", "prompt")
    try:
        [text], _ = chat_template_utils.render_jinja_template(
            conversations=[chat_template_utils._normalize_chat_messages(messages)],
            tools=chat.get("tools"),
            documents=None,
            chat_template=source,
            add_generation_prompt=ending == "prompt",
            continue_final_message=ending == "continued",
            bos_token="<s>",
            eos_token="</s>",
            **chat.get("arguments", {}),
        )
        return {"text": text}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"refused": str(error)}
        return {"failed": type(error).__name__}
    except Exception as error:
        return {"failed": type(error).__name__}


def conversations():
    chats = json.loads((HERE / "conversations.json").read_text(encoding="utf-8"))
    tools = chats.pop("TOOLS")
    for chat in chats.values():
        if chat.get("tools") == "TOOLS":
            chat["tools"] = tools
    return chats


def main():
    chats = conversations()
    families = {}
    folder = HERE / "families"
    if len(sys.argv) > 2:
        folder = pathlib.Path(sys.argv[2])
        # How templates of others read parts is not written down here.
        in_parts = lambda chat: any(isinstance(given["content"], list) for given in chat["messages"])
        chats = {name: chat for name, chat in chats.items() if not in_parts(chat)}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        families[path.stem] = {name: render(source, chat, path.stem) for name, chat in chats.items()}
    rows = (HERE / "semantics.txt").read_text(encoding="utf-8").replace("\u240d", "\r").split("\n=====\n")
    semantics = [render(row, chats["odd_arguments"]) for row in rows]
    goldens = {"families": families, "semantics": semantics}
    text = json.dumps(goldens, ensure_ascii=True, indent=1) + "\n"
    if sys.argv[1:2] == ["--print"]:
        sys.stdout.write(text)
    else:
        (HERE / "goldens.json").write_text(text, encoding="utf-8")


main()
