package openai

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	messages "understudy/graph/message"
	"understudy/internal/cputest"
)

// someJSON returns a JSON value with white space and escapes where they are allowed.
func someJSON(r *rand.Rand, depth int) string {
	blank := func() string { return []string{"", "", " ", "\n\t", "\r"}[r.IntN(5)] }
	text := func() string {
		raw := ""
		for range r.IntN(6) {
			raw += []string{`\\`, `\"`, `\u005b`, "{", "}", "[", "]", ",", "é", "a", " ", `\n`}[r.IntN(12)]
		}
		return `"` + raw + `"`
	}
	kind := r.IntN(7)
	if depth == 0 {
		kind %= 5
	}
	var items []string
	switch kind {
	case 0, 1:
		return text()
	case 2:
		return []string{"true", "false", "null"}[r.IntN(3)]
	case 3:
		return fmt.Sprint(r.IntN(1000) - 500)
	case 4:
		return []string{"0", "-1.5e+10", "1E-3", "{}", "[]", `""`}[r.IntN(6)]
	case 5:
		for range r.IntN(4) {
			items = append(items, blank()+someJSON(r, depth-1)+blank())
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	for range r.IntN(4) {
		items = append(items, blank()+text()+blank()+":"+blank()+someJSON(r, depth-1)+blank())
	}
	return "{" + strings.Join(items, ",") + "}"
}

// However a value is cut into pieces, each piece leaves it as complete as encoding/json says; what follows it makes it invalid.
func TestProgress(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 5000 {
		text := []string{"", " ", "\n"}[r.IntN(3)] + someJSON(r, 4) + []string{"", "", "  ", "\n", "{", `"x"`, "}", "1", "]"}[r.IntN(9)]
		var p progress
		for from := 0; from < len(text); {
			to := min(from+1+r.IntN(4), len(text))
			p.add(text[from:to])
			require.Equal(t, json.Valid([]byte(text[:to])), p.complete(), "%q", text[:to])
			require.Equal(t, to, p.len)
			from = to
		}
	}
	for text, want := range map[string]bool{ // complete, but not valid
		"{\"a\":\"line\nline\"}": true, "{'a': 1}": true, "{'a': 1": false, "{}{}": false, "}": false, strings.Repeat("1", 100): false,
	} {
		var p progress
		p.add(text)
		require.Equal(t, want, p.complete(), "%q", text)
	}
}

// Ten times the pieces take about ten times the time, in whatever way a server repeats itself.
func TestPiecesTakeLinearTime(t *testing.T) {
	t.Parallel()
	for name, piece := range map[string]func(i int) string{
		"id and name with each piece": func(int) string { return `{"id":"a","function":{"name":"f","arguments":"aaaaaaaa"}}` },
		"another id with each piece": func(i int) string {
			return fmt.Sprintf(`{"id":"a%d","function":{"name":"f","arguments":"aaaaaaaa"}}`, i)
		},
		"name with each piece": func(int) string { return `{"index":0,"function":{"name":"f","arguments":"aaaaaaaa"}}` },
		"a name in pieces": func(i int) string {
			return fmt.Sprintf(`{"index":0,"function":{"name":"aaaaaaa%d","arguments":""}}`, i%10)
		},
		"an id, and a name in pieces": func(i int) string {
			return fmt.Sprintf(`{"id":"a","function":{"name":"aaaaaaa%d","arguments":"a"}}`, i%10)
		},
		"extra content":                func(int) string { return `{"index":0,"id":"a","extra_content":{"a":"aaaaaaaa"}}` },
		"half of a surrogate":          func(int) string { return `{"index":0,"id":"a","function":{"arguments":"\ud83d"}}` },
		"calls without names and ends": func(i int) string { return fmt.Sprintf(`{"index":%d,"function":{"arguments":"{"}}`, i%1000) },
	} {
		for form, stream := range map[string]func(pieces []string){
			"one event after another": func(pieces []string) {
				var s messages.Sum
				s.Add(messages.AIChunk(""))
				var d decoder
				for range 2 {
					c, _, _ := d.Event("", []byte(`{"choices":[{"delta":{"tool_calls":[`+strings.Join(pieces, ",")+`]}}]}`))
					m := messages.AIChunk("")
					for _, call := range c.ToolCalls {
						m.ToolCallChunks = append(m.ToolCallChunks, messages.ToolCallChunk{Name: call.Name, Args: call.Arguments, Index: &call.Index})
					}
					s.Add(m)
				}
				s.Message()
			},
			"events": func(pieces []string) {
				var d decoder
				for _, p := range pieces {
					if _, _, err := d.Event("", []byte(`{"choices":[{"delta":{"tool_calls":[`+p+`]}}]}`)); err != nil {
						return
					}
				}
			},
			"one event": func(pieces []string) {
				var d decoder
				_, _, _ = d.Event("", []byte(`{"choices":[{"delta":{"tool_calls":[`+strings.Join(pieces, ",")+`]}}]}`))
			},
			"choices of one event": func(pieces []string) {
				var d decoder
				_, _, _ = d.Event("", []byte(`{"choices":[{"delta":{"tool_calls":[`+strings.Join(pieces, `]},"logprobs":{"a":1}},{"delta":{"tool_calls":[`)+`]}}]}`))
			},
		} {
			t.Run(name+"/"+form, func(t *testing.T) {
				took := func(n int) time.Duration {
					pieces := make([]string, n)
					for i := range pieces {
						pieces[i] = `{"index":0,"id":"a","function":{"name":"f","arguments":"{\""}}`
						if i > 0 || strings.HasPrefix(name, "a name") {
							pieces[i] = piece(i)
						}
					}
					return cputest.Time(func() { stream(pieces) })
				}
				linear(t, took)
			})
		}
	}
}

// linear fails unless took(20,000) is about ten times took(2,000), in the best of some tries: the machine may be busy.
func linear(t *testing.T, took func(n int) time.Duration) {
	t.Helper()
	var few, many time.Duration
	for range 5 {
		few, many = took(2_000), took(20_000)
		if many < 20*few+50*time.Millisecond {
			return
		}
	}
	t.Errorf("%s, and ten times the pieces take %s", few, many)
}

func TestPartsTakeLinearTime(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"text": `{"type":"text","text":"$"}`, "texts": `"$"`, "thinking": `{"type":"thinking","thinking":"$"}`, "thoughts": `{"type":"thinking","thinking":[{"text":"$"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			linear(t, func(n int) time.Duration {
				parts := strings.Repeat(strings.Replace(part, "$", strings.Repeat("a", 200), 1)+",", n)
				event := []byte(`{"choices":[{"delta":{"content":[` + parts + `""]}}]}`)
				var d decoder
				return cputest.Time(func() { _, _, _ = d.Event("", event) })
			})
		})
	}
}
