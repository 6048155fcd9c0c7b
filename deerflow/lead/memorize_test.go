package lead_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/deerflow/lead"
	"understudy/deerflow/memory"
)

// With memory.mode tool the agent keeps facts itself, each user's for that user and agent, and nothing is learned of what was said.
func TestMemoryTools(t *testing.T) {
	t.Parallel()
	w := setup(t, config+"memory: {mode: tool, backend_config: {max_facts: 3}}\n")
	learned := 0
	kept := memory.Files{Path: func(subject string) string {
		return filepath.Join(w.dir, "memories", strings.ReplaceAll(subject, "\x00", "+")+".json")
	}}
	book := &memory.Book{Now: time.Now, In: func(string) memory.Documents { return kept }}
	w.options.Memory = lead.Memory{
		Book:  book,
		Learn: func(context.Context, string, string, string, []memory.Turn) error { learned++; return nil },
	}
	w.options.Agent = func(_, name string) (lead.Character, error) {
		if name != "cook" {
			return lead.Character{}, errUnknown
		}
		return lead.Character{}, nil
	}
	w.rebuild()
	say := func(call, context string) gjson.Result {
		t.Helper()
		_, got := w.say(t, call, context, nil)
		return gjson.Parse(got)
	}
	tea := say(`memory_add {"content":" Drinks tea. ","category":"preference","confidence":0.9}`, `{"user_id":"u"}`)
	require.Equal(t, "added", tea.Get("status").String())
	require.Equal(t, "Duplicate fact", say(`memory_add {"content":"drinks TEA."}`, `{"user_id":"u"}`).Get("error").String())
	require.Contains(t, say(`memory_add {"content":"  "}`, `{"user_id":"u"}`).Get("error").String(), "empty")
	require.Contains(t, say(`memory_add {"content":"x","confidence":7}`, `{"user_id":"u"}`).Get("error").String(), "between 0 and 1")
	say(`memory_add {"content":"喜欢喝绿茶","confidence":0.8}`, `{"user_id":"u"}`)
	say(`memory_add {"content":"Cooks for tea parties"}`, `{"user_id":"u"}`)
	require.Contains(t, say(`memory_add {"content":"weak","confidence":0.1}`, `{"user_id":"u"}`).Get("error").String(), "memory.max_facts")

	found := say(`memory_search {"query":"tea parties"}`, `{"user_id":"u"}`)
	require.Equal(t, `["Cooks for tea parties","Drinks tea."]`, found.Get("results.#.content").Raw)
	require.Equal(t, int64(2), found.Get("count").Int())
	require.Equal(t, "t1", found.Get("results.0.source").String())
	require.Equal(t, `["喜欢喝绿茶"]`, say(`memory_search {"query":"绿茶好吗"}`, `{"user_id":"u"}`).Get("results.#.content").Raw)
	require.Equal(t, `["Drinks tea."]`, say(`memory_search {"query":"tea","category":"preference"}`, `{"user_id":"u"}`).Get("results.#.content").Raw)
	for _, other := range []string{`{"user_id":"v"}`, `{"user_id":"u","agent_name":"cook"}`} {
		require.Equal(t, int64(0), say(`memory_search {"query":""}`, other).Get("count").Int(), other)
	}

	id := tea.Get("fact_id").String()
	require.Equal(t, "updated", say(`memory_update {"fact_id":"`+id+`","content":"Drinks green tea."}`, `{"user_id":"u"}`).Get("status").String())
	require.Equal(t, "Fact not found: nope", say(`memory_update {"fact_id":"nope","content":"x"}`, `{"user_id":"u"}`).Get("error").String())
	require.Equal(t, "deleted", say(`memory_delete {"fact_id":"`+id+`"}`, `{"user_id":"u"}`).Get("status").String())
	require.Equal(t, "Fact not found: "+id, say(`memory_delete {"fact_id":"`+id+`"}`, `{"user_id":"u"}`).Get("error").String())
	require.Zero(t, learned)

	_, got := setup(t, config).say(t, `memory_search {"query":"x"}`, `{}`, nil)
	require.Contains(t, got, "Error: memory_search is not a valid tool")
}
