package jsonscan

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/cputest"
)

func TestValidRefusesDeepNesting(t *testing.T) {
	t.Parallel()
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	require.True(t, Valid(deep(maxDepth)))
	require.False(t, Valid(deep(maxDepth+1)))
	require.False(t, Valid([]byte(strings.Repeat("[", 1<<22))))
	require.True(t, Valid([]byte(`{"a":"[[[\"{"}`)))
	require.False(t, Valid([]byte(`{"a":"`)))
	require.False(t, Valid(nil))
}

func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":[1,{"c":"\"]"},null]}`, ` [ 1 , "x" ] `, `{"messages":[{"id":"1"}]}`, `"`, `{"a`, `[1,`} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		if start, end, ok := Member(b, key); ok {
			require.True(t, 0 <= start && start <= end && end <= len(b))
		}
		items, ok := Elements(b)
		Text(b, key)
		if !Valid(b) {
			return
		}
		var list []json.RawMessage
		if isList := json.Unmarshal(b, &list) == nil && list != nil; isList {
			require.True(t, ok)
			require.Len(t, items, len(list))
			for i := range list {
				require.JSONEq(t, string(list[i]), string(items[i]))
			}
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(b, &object) == nil && object != nil {
			for k := range object {
				_, _, ok := Member(b, k)
				require.True(t, ok || strings.ContainsRune(k, '\ufffd'), k)
			}
		}
	})
}

// Twice the input takes about twice the time, whatever a client puts into a text.
func TestSkipIsLinear(t *testing.T) {
	for name, piece := range map[string]string{"escapes": `\\n`, "quotes": `\"`, "backslashes": `\\\\`, "mixed": `a\"b\\n`} {
		work := func(n int) time.Duration {
			text := []byte(`"` + strings.Repeat(piece, n) + `"`)
			best := time.Duration(math.MaxInt64)
			for range 3 {
				var end int
				best = min(best, cputest.Time(func() { end = Skip(text, 0) }))
				require.Equal(t, len(text), end, name)
			}
			return best
		}
		small := work(50_000)
		require.Less(t, work(400_000), 24*small+50*time.Millisecond, name)
	}
}
