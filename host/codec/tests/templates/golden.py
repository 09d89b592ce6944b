"""What Python's jinja2 makes of the templates beside this file, as JSON: the goldens of `tests/templates.rs`.

The environment is the one that transformers gives to chat templates. `golden.py` writes `goldens.json`; `golden.py --print` only
prints it, and `golden.py --print FOLDER` prints what becomes of the families in another folder.
"""

import datetime
import json
import pathlib
import re
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
# Friday, 26 July 2024, 09:05:07 UTC.
NOW = 1721984707
# Where templates look for the assistant's thoughts, the usual place first.
REASONING = ["reasoning_content", "thinking", "reasoning"]


class Refused(Exception):
    """The template's own words."""


class Generation(jinja2.ext.Extension):
    """`{% generation %}`: a block that is written as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("as_it_is"), [], [], body, lineno=line)

    def as_it_is(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(words):
        raise Refused(str(words))

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def message(given, source):
    """A message as templates see it; fields that are not given are not there."""
    seen = {"role": given["role"], "content": given["content"]}
    if "name" in given:
        seen["name"] = given["name"]
    if "reasoning_content" in given:
        looks = lambda name: re.search(r"\.%s\b|['\"]%s['\"]" % (name, name), source)
        seen[next(filter(looks, REASONING), REASONING[0])] = given["reasoning_content"]
    if "tool_calls" in given:
        seen["tool_calls"] = [
            ({"id": call["id"]} if call["id"] else {})
            | {"type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in given["tool_calls"]
        ]
    if "tool_call_id" in given:
        seen["tool_call_id"] = given["tool_call_id"]
    return seen


def render(template, source, chat):
    try:
        text = template.render(
            **chat.get("arguments", {}),
            messages=[message(given, source) for given in chat["messages"]],
            tools=chat.get("tools"),
            documents=None,
            add_generation_prompt=True,
            bos_token="<s>",
            eos_token="</s>",
        )
        return {"text": text}
    except Refused as refused:
        return {"refused": str(refused)}
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
    env = environment()
    chats = conversations()
    families = {}
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "families"
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        template = env.from_string(source)
        families[path.stem] = {name: render(template, source, chat) for name, chat in chats.items()}
    rows = (HERE / "semantics.txt").read_text(encoding="utf-8").replace("\u240d", "\r").split("\n=====\n")
    semantics = [render(env.from_string(row), row, chats["odd_arguments"]) for row in rows]
    goldens = {"families": families, "semantics": semantics}
    text = json.dumps(goldens, ensure_ascii=True, indent=1) + "\n"
    if sys.argv[1:2] == ["--print"]:
        sys.stdout.write(text)
    else:
        (HERE / "goldens.json").write_text(text, encoding="utf-8")


main()
