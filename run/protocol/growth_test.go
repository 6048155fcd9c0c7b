package protocol_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/cputest"
	"understudy/run/protocol"
)

// shapes are the records of runs in which n of something are open at once, or grow.
var shapes = map[string]func(n int) []string{
	"parallel subgraphs": func(n int) (out []string) {
		for i := range n {
			out = append(out, "tasks", fmt.Sprintf(`{"id":"t%d","name":"child","input":{},"triggers":[]}`, i))
		}
		for i := range n {
			out = append(out, fmt.Sprintf("tasks|child:t%d", i), fmt.Sprintf(`{"id":"i%d","name":"n","input":{},"triggers":[]}`, i))
		}
		for range 3 {
			for i := range n {
				out = append(out, fmt.Sprintf("updates|child:t%d", i), `{"n":{"n":2}}`)
			}
		}
		for i := range n {
			out = append(out, "tasks", fmt.Sprintf(`{"id":"t%d","name":"child","error":null,"result":{},"interrupts":[]}`, i))
		}
		return out
	},
	"parallel messages": func(n int) (out []string) {
		for range 4 {
			for i := range n {
				out = append(out, "messages", chunkOf(fmt.Sprintf("m%d", i), "one", `"content":"A"`))
			}
		}
		for i := range n {
			out = append(out, "messages", chunkOf(fmt.Sprintf("m%d", i), "one", `"content":"A","chunk_position":"last"`))
		}
		return out
	},
	"blocks": func(n int) (out []string) {
		for i := range n {
			out = append(out, "messages", chunkOf("m", "one", fmt.Sprintf(`"content":[{"type":"text","text":"A","index":%d}]`, i)))
		}
		return out
	},
	"blocks at once": func(n int) (out []string) {
		var b []string
		for i := range n {
			b = append(b, fmt.Sprintf(`{"type":"text","text":"A","index":%d}`, i))
		}
		return []string{"messages", chunkOf("m", "one", `"content":[`+strings.Join(b, ",")+`]`)}
	},
	"text": func(n int) (out []string) {
		for range n {
			out = append(out, "messages", chunkOf("m", "one", `"content":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"`))
		}
		return out
	},
	"tool args": func(n int) (out []string) {
		for range n {
			out = append(out, "messages", chunkOf("m", "one", `"content":"","tool_call_chunks":[{"name":null,"args":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","id":null,"index":0}]`))
		}
		return out
	},
	"reasoning": func(n int) (out []string) {
		for range n {
			out = append(out, "messages", chunkOf("m", "one", `"content":[{"type":"reasoning","reasoning":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","index":0}]`))
		}
		return out
	},
	"other blocks grow": func(n int) (out []string) {
		for range n {
			out = append(out, "messages", chunkOf("m", "one", `"content":[{"type":"image","base64":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","index":0}]`))
		}
		return out
	},
	"text with annotations": func(n int) (out []string) {
		for i := range n {
			out = append(out, "messages", chunkOf("m", "one", fmt.Sprintf(`"content":[{"type":"text","text":"a","annotations":[{"type":"citation","n":%d}],"index":0}]`, i)))
		}
		return out
	},
	"metadata": func(n int) (out []string) {
		for i := range n {
			out = append(out, "messages", chunkOf("m", "one", fmt.Sprintf(`"content":"","response_metadata":{"k%d":1}`, i)))
		}
		return out
	},
	"interrupts": func(n int) (out []string) {
		var b []string
		for i := range n {
			b = append(b, fmt.Sprintf(`{"value":1,"id":"i%d"}`, i))
		}
		asks := `{"__interrupt__":[` + strings.Join(b, ",") + `]}`
		return []string{"updates", asks, "values", asks, "updates", asks}
	},
	"interrupts in turn": func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("tasks|child:t%d", i), `{"id":"x","name":"n","input":{},"triggers":[]}`, fmt.Sprintf("updates|child:t%d", i), fmt.Sprintf(`{"__interrupt__":[{"value":1,"id":"i%d"}]}`, i))
		}
		return out
	},
}

// The work for a record does not grow with what else is open: with eight times as much the whole takes about eight times as long, not 64 times.
func TestWideRunsTakeLinearTime(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes {
		measure := func(n int) time.Duration {
			source, records := oneRun(shape(n)...)
			best := time.Hour
			for range 5 {
				p := protocol.New(source, everything)
				best = min(best, cputest.Time(func() {
					for _, rec := range records {
						_, err := p.Add(t.Context(), rec)
						require.NoError(t, err)
					}
				}))
			}
			return best
		}
		small, large := measure(500), measure(4000)
		require.Less(t, float64(large), 24*float64(small), "%s: %s and %s", name, small, large)
	}
}
