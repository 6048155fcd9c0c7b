package lead_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent/scripted"
)

const editing = `
models: [{name: plain, use: x, model: x}]
sandbox: {allow_host_bash: true}
tools:
  - {name: write_file, group: write, use: "deerflow.sandbox.tools:write_file_tool"}
  - {name: str_replace, group: write, use: "deerflow.sandbox.tools:str_replace_tool"}
  - {name: bash, group: bash, use: "deerflow.sandbox.tools:bash_tool"}
  - {name: read_file, group: read, use: "deerflow.sandbox.tools:read_file_tool"}
title: {enabled: false}
loop_detection: {enabled: false}
`

// How much of a file a read shows.
const (
	nothing = iota
	part
	whole
)

// lines are arguments of read_file, and from what they mean what a result shows.
type lines struct {
	args string
	from int
	to   int  // 0: the end
	ok   bool // whether it is a range
}

var ranges = []lines{
	{"", 1, 0, true},
	{"", 1, 0, true},
	{`,"start_line":null,"end_line":null`, 1, 0, true},
	{`,"start_line":1`, 1, 0, true},
	{`,"start_line":1,"end_line":1`, 1, 1, true},
	{`,"end_line":1`, 1, 1, true},
	{`,"start_line":2`, 2, 0, true},
	{`,"start_line":9`, 9, 0, true},
	{`,"start_line":2,"end_line":2`, 2, 2, true},
	{`,"start_line":2,"end_line":1`, 2, 1, false},
	{`,"start_line":0`, 0, 0, false},
	{`,"end_line":0`, 1, 0, false},
	{`,"start_line":-1`, -1, 0, false},
}

func (l lines) shown(text string) int {
	switch {
	case !l.ok, strings.Contains(text, "\x00"), l.from > strings.Count(text, "\n")+1:
		return nothing
	case text == "", l.from == 1 && l.to == 0 && utf8.RuneCountInString(text) <= 50_000:
		return whole
	}
	return part
}

// Over any order of reads, writes, and changes by others, a file is replaced when the model knows its content, and not otherwise: what is on disk is never lost unseen.
func TestFilesAreReadBeforeTheyAreReplaced(t *testing.T) {
	t.Parallel()
	const path = "/mnt/user-data/workspace/a.txt"
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := setup(t, editing)
		at := filepath.Join(w.dir, "users/default/threads/t/user-data/workspace/a.txt")
		read := func() *string {
			raw, err := os.ReadFile(at)
			if err != nil {
				return nil
			}
			text := string(raw)
			return &text
		}
		var known *string // what the model knows
		ever := false     // it has seen some of it
		for step := range 20 {
			is := read()
			text := fmt.Sprintf("x%d.%d", step, random.IntN(1000))
			var call string
			allowed := true
			spelled := []string{path, "/mnt/user-data/./workspace//a.txt"}[random.IntN(2)]
			switch random.IntN(7) {
			case 0, 5:
				lines := ranges[random.IntN(len(ranges))]
				call = fmt.Sprintf(`read_file {"path":%q%s}`, spelled, lines.args)
				if is != nil {
					shown := lines.shown(*is)
					ever = ever || shown != nothing
					if shown == whole {
						known = is
					}
				}
			case 1, 2:
				call = fmt.Sprintf(`write_file {"path":%q,"content":%q}`, spelled, text)
				allowed = is == nil || known != nil && *known == *is
				if allowed {
					known, ever = &text, true
				}
			case 3:
				call = fmt.Sprintf(`write_file {"path":%q,"content":%q,"append":true}`, spelled, text)
				if is == nil {
					known, ever = &text, true
				} else if known != nil && *known == *is {
					both := *is + text
					known = &both
				}
			case 4:
				call = fmt.Sprintf(`str_replace {"path":%q,"old_str":"x","new_str":"y","replace_all":true}`, spelled)
				if allowed = is == nil || ever; allowed && is != nil && known != nil && *known == *is {
					next := strings.ReplaceAll(*is, "x", "y")
					known = &next
				}
			default: // another program
				require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
				text = []string{text, text + "\n" + text, text + "\x00", text + strings.Repeat("é", 50_000), ""}[random.IntN(5)]
				require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
				continue
			}
			v, _, err := w.converse(t, "t", call, `{}`)
			require.NoError(t, err)
			result := v.Get("messages|@reverse|1").Get("content").String()
			if allowed {
				require.NotRegexp(t, "you have (not )?read|since you read", result, "seed %d, step %d: %s", seed, step, call)
				continue
			}
			want := "has changed since you read it"
			switch {
			case !ever:
				want = "exists, and you have not read it"
			case known == nil:
				want = "exists, and you have read only a part of it"
			}
			require.Contains(t, result, "Error: /mnt/user-data/workspace/a.txt "+want, "seed %d, step %d: %s", seed, step, call)
			require.Equal(t, "error", v.Get("messages|@reverse|1").Get("status").String())
			require.Equal(t, *is, *read())
		}
	}
}

// Of two calls of one answer that replace the same file one succeeds: the other would lose what the model does not know yet.
func TestReplacingTwiceAtOnce(t *testing.T) {
	t.Parallel()
	write := func(text string) scripted.ToolCall {
		return scripted.ToolCall{Name: "write_file", Args: []byte(fmt.Sprintf(`{"path":"/mnt/user-data/workspace/a.txt","content":%q}`, text))}
	}
	w := setup(t, editing, scripted.Answer{When: "^both$", From: "human", ToolCalls: []scripted.ToolCall{write("one"), write("two")}})
	for _, thread := range []string{"a", "b", "c"} {
		v, _, err := w.converse(t, thread, "both", `{}`)
		require.NoError(t, err)
		var ok, refused int
		for _, m := range v.Get("messages").Array()[v.Get("messages.#").Int()-3:] {
			switch text := m.Get("content").String(); {
			case text == "OK":
				ok++
			case strings.HasPrefix(text, "Error: "):
				refused++
			}
		}
		require.Equal(t, 1, ok, v.Raw)
		require.Equal(t, 1, refused)
	}
}

// A summary takes the place of what was read: then it has to be read again.
func TestSummariesForgetFiles(t *testing.T) {
	t.Parallel()
	w := setup(t, editing+"summarization: {enabled: true, trigger: [{type: messages, value: 8}], keep: {type: messages, value: 1}}\n")
	const write = `write_file {"path":"/mnt/user-data/workspace/a.txt","content":"%d"}`
	_, _, err := w.converse(t, "t", fmt.Sprintf(write, 1), `{}`)
	require.NoError(t, err)
	v, _, err := w.converse(t, "t", fmt.Sprintf(write, 2), `{}`)
	require.NoError(t, err)
	require.Equal(t, "OK", v.Get("messages|@reverse|1.content").String())
	v, _, err = w.converse(t, "t", fmt.Sprintf(write, 3), `{}`)
	require.NoError(t, err)
	require.Contains(t, v.Get("messages|@reverse|1.content").String(), "you have not read it")
}
