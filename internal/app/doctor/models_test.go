package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/agent/providertest"
)

// With Models each model is called once: with a tool where its agent has tools, with an image where it is declared to read them. Findings
// say what works, and hold no secret.
func TestModels(t *testing.T) {
	t.Parallel()
	call := providertest.Stream(providertest.Data(providertest.Calls(providertest.Piece("0", "a", "report_color", `{"color":"Red"}`)), providertest.Finish("tool_calls"),
		`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, providertest.Done))
	cases := []*providertest.Case{
		{Name: "all", Replies: []providertest.Reply{call}},
		{Name: "prose", Replies: []providertest.Reply{providertest.Answer("It is rendered in blue.")}},
		{Name: "refuses", Replies: []providertest.Reply{providertest.JSON(401, `{"error":{"message":"Incorrect API key: `+providertest.Secret+`"}}`)}},
		{Name: "busy", Replies: []providertest.Reply{providertest.JSON(429, `{"error":{"message":"slow"}}`, providertest.Soon...)}},
		{Name: "page", Replies: []providertest.Reply{providertest.Body(200, "text/html", "<title>Welcome</title>")}},
		{Name: "nothing", Replies: []providertest.Reply{providertest.Stream(providertest.Data(providertest.Done))}},
		{Name: "variable", Replies: []providertest.Reply{call}},
		{Name: "claude", Provider: "anthropic", Replies: []providertest.Reply{providertest.Claude("end_turn", providertest.Text(0, "red"))}},
	}
	server := providertest.Serve(cases)
	defer server.Close()
	model := func(provider, name, more string) string {
		return fmt.Sprintf(`{"name": "%s:m", "base_url": "%s/%s/v1", "api_key": "%s"%s}`, provider, server.URL, name, providertest.Secret, more)
	}
	p := newPatient(t)
	p.write("langgraph.json", `{"graphs": {
		"a": {"agent": {"model": `+model("openai", "all", `, "images": true`)+`, "tools": ["calculator"], "middleware": {"title": {"model": `+model("anthropic", "claude", "")+`}}}},
		"b": {"agent": {"model": `+model("openai", "all", `, "images": true`)+`}},
		"c": {"agent": {"model": `+model("openai", "prose", `, "images": true`)+`, "tools": ["calculator"]}},
		"d": {"agent": {"model": `+model("openai", "refuses", "")+`}},
		"e": {"agent": {"model": {"name": "scripted:", "script": [{"content": "hi"}]}}},
		"f": {"agent": {"model": `+strings.Replace(model("openai", "busy", ""), ":m", ":busy", 1)+`}},
		"g": {"agent": {"model": `+strings.Replace(model("openai", "page", ""), ":m", ":page", 1)+`}},
		"h": {"agent": {"model": `+strings.Replace(model("openai", "nothing", `, "retries": 0`), ":m", ":nothing", 1)+`}},
		"i": {"agent": {"model": "openai:variable"}}}, "env": {"OPENAI_BASE_URL": "`+server.URL+`/variable/v1", "OPENAI_API_KEY": "`+providertest.Secret+`\n"}}`)
	require.NotContains(t, p.examine(), "model: openai", "only with Models")
	require.Empty(t, server.Sent("all"))
	p.models = true
	text := p.examine()
	require.Regexp(t, `ok model: openai:m \(graphs.a.agent.model, graphs.b.agent.model\) answers in \d+\.\d s: calls a tool, reads an image, reports usage →`, text)
	require.Regexp(t, `ok model: anthropic:m answers in \d+\.\d s: reports usage →`, text)
	require.Regexp(t, `warning model: openai:m \(graphs.c.agent.model\) answers in \d+\.\d s; not seen: calls a tool, reads an image, reports usage → the agent's tools are of no use with this model: check the name of graphs.c.agent.model, .*; set images of graphs.c.agent.model to false, .* \["It is rendered in blue\."\]`, text)
	require.Regexp(t, `problem model: openai:m \(graphs.d.agent.model\) does not answer \(\d\.\d s\): 401 Unauthorized: Incorrect API key: \[redacted\] → check api_key of graphs.d.agent.model`, text)
	require.Regexp(t, `problem model: openai:busy does not answer \(\d\.\d s\): 429 Too Many Requests: slow → wait, have fewer runs at a time, .*, or raise retries of graphs.f.agent.model`, text)
	require.Regexp(t, `problem model: openai:page does not answer \(\d\.\d s\): the server sent an HTML page \(Welcome\) in place of an answer → check base_url of graphs.g.agent.model: it points to a web page`, text)
	require.Regexp(t, `problem model: openai:nothing does not answer \(\d\.\d s\): the provider sent no answer → try again; if it happens often, look into the log of the server, and check base_url of graphs.h.agent.model`, text)
	require.Regexp(t, `ok model: openai:variable, at the address in OPENAI_BASE_URL, answers in`, text)
	require.ElementsMatch(t, []string{
		"asking openai:m (graphs.a.agent.model, graphs.b.agent.model), for at most 2m0s", "asking anthropic:m, for at most 2m0s", "asking openai:m (graphs.c.agent.model), for at most 2m0s",
		"asking openai:m (graphs.d.agent.model), for at most 2m0s", "asking openai:busy, for at most 2m0s", "asking openai:page, for at most 2m0s", "asking openai:nothing, for at most 2m0s",
		"asking openai:variable, at the address in OPENAI_BASE_URL, for at most 2m0s",
	}, p.doing)
	require.Contains(t, text, "ok model: scripted: needs no provider")
	require.NotContains(t, text, providertest.Secret)
	sent := server.Sent("all")
	require.Len(t, sent, 1, "two agents have the same model")
	require.Equal(t, "report_color", sent[0].Get("tools.0.function.name").Str)
	require.Equal(t, "image_url", sent[0].Get("messages.0.content.1.type").Str)
	require.Equal(t, gjson.Null, server.Sent("claude")[0].Get("tools").Type)
}

// The suggestion names what set the limit: the model's timeout cannot change that of doctor.
func TestModelsThatTakeLong(t *testing.T) {
	t.Parallel()
	cases := []*providertest.Case{
		{Name: "hangs", Replies: []providertest.Reply{providertest.Hang("")}},
		{Name: "slow", Replies: []providertest.Reply{providertest.Hang("")}},
		{Name: "silent", Replies: []providertest.Reply{providertest.Hang(providertest.Data(providertest.Says("Hi")))}},
	}
	server := providertest.Serve(cases)
	defer server.Close()
	model := func(name, more string) string {
		return fmt.Sprintf(`{"agent": {"model": {"name": "openai:%s", "base_url": "%s/%s/v1", "api_key": "%s", "retries": 0%s}}}`, name, server.URL, name, providertest.Secret, more)
	}
	p := newPatient(t)
	p.models = true
	p.write("langgraph.json", `{"graphs": {"a": `+model("slow", `, "timeout": "50ms"`)+`, "b": `+model("silent", `, "idle_timeout": "50ms"`)+`}}`)
	text := p.examine()
	require.Regexp(t, `problem model: openai:slow does not answer \(\d\.\d s\): the model did not begin to answer in time \(timeout is 50ms\) → check that the server has capacity, or raise timeout of graphs.a.agent.model`, text)
	require.Regexp(t, `problem model: openai:silent does not answer \(\d\.\d s\): the model was silent for too long \(idle_timeout is 50ms\) → check that the server has capacity, or raise idle_timeout of graphs.b.agent.model`, text)
	p.limit = 50 * time.Millisecond
	p.write("langgraph.json", `{"graphs": {"a": `+model("hangs", "")+`}}`)
	require.Regexp(t, `problem model: openai:hangs does not answer \(\d\.\d s\): no answer within doctor's own limit of 50ms → check that the server has capacity; timeout of graphs.a.agent.model does not change this limit`, p.examine())
}
