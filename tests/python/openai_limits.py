"""How the official `openai` client meets a server that is full, slow or closed to it.

    openai_limits.py BASE_URL MODEL API_KEY

The server has one lane and draws slowly, so that a few requests of many choices fill its queue.
"""

import openai

from steps import main, raised, step

CHOICES = 128
# Every choice waits for a lane of its own; the server lets 512 wait.
REQUESTS = 4


class Talk:
    def __init__(self, base_url, model, key):
        self.base_url, self.model, self.key = base_url, model, key
        self.client = self.connect()

    def connect(self, **settings):
        settings = {"api_key": self.key, "max_retries": 0, "timeout": 120, **settings}
        return openai.OpenAI(base_url=self.base_url, **settings)

    def complete(self, client=None, **fields):
        fields = {"max_tokens": 4, "extra_body": {"ignore_eos": True}, **fields}
        return (client or self.client).completions.create(model=self.model, prompt="x", **fields)

    def endless(self, **fields):
        # What was given up before may still be on its way out of the queue: this client waits for that.
        fields = {"client": self.connect(max_retries=5), **fields}
        return self.complete(max_tokens=900, stream=True, **fields)

    def lanes(self):
        metrics = self.client.with_options(base_url=self.base_url.removesuffix("/v1")).get("/metrics", cast_to=str)
        lines = [line for line in metrics.splitlines() if line.startswith("superfluid_lanes_active{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@step
def a_stranger_is_refused(talk):
    stranger = talk.connect(api_key="not the key")
    for call in (stranger.models.list, lambda: talk.complete(stranger), lambda: talk.endless(client=stranger)):
        error = raised(openai.AuthenticationError, call)
        assert error.code == "invalid_api_key" and error.status_code == 401


@step
def a_full_queue_is_a_rate_limit_that_says_when_to_come_back(talk):
    streams = [talk.endless(n=CHOICES) for _ in range(REQUESTS)]
    error = raised(openai.RateLimitError, lambda: talk.complete(n=CHOICES))
    assert error.code == "queue_full" and error.type == "rate_limit_error", error.body
    assert int(error.response.headers["retry-after"]) >= 1
    for stream in streams:
        stream.close()


@step
def a_client_that_retries_gets_its_answer_when_there_is_room(talk):
    streams = [talk.endless(n=CHOICES) for _ in range(REQUESTS)]
    refusals = []

    class Watching(openai.DefaultHttpxClient):
        """Makes room once the server has refused a request."""

        def send(self, *args, **kwargs):
            response = super().send(*args, **kwargs)
            if response.status_code == 429:
                refusals.append(response)
                while streams:
                    streams.pop().close()
            return response

    client = talk.connect(max_retries=5, http_client=Watching())
    assert len(talk.complete(client, n=CHOICES, max_tokens=1).choices) == CHOICES
    assert refusals, "nothing was refused"


@step
def a_client_that_has_waited_long_enough_leaves_and_frees_its_lane(talk):
    hasty = talk.connect(timeout=0.5)
    raised(openai.APITimeoutError, lambda: talk.complete(hasty, max_tokens=900))
    while talk.lanes() > 0:
        pass
    assert talk.complete().choices[0].finish_reason == "length"


if __name__ == "__main__":
    main(Talk, "openai")
