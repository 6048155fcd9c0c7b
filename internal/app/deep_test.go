package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/pregel"
	"understudy/internal/config"
)

// deepState is the state of a graph that nests what it returns: as Go values, or as JSON.
type deepState struct {
	Levels int             `json:"levels"`
	Raw    bool            `json:"raw"`
	List   []any           `json:"list"`
	Dict   map[string]any  `json:"dict"`
	Text   json.RawMessage `json:"text"`
}

func nestedValue(levels int) any {
	var v any = "core"
	for n := range levels {
		if n%2 == 0 {
			v = []any{fmt.Sprintf("b%d", n), v, fmt.Sprintf("a%d", n)}
		} else {
			v = map[string]any{"b": fmt.Sprintf("b%d", n), "v": v, "z": fmt.Sprintf("a%d", n)}
		}
	}
	return v
}

func deepGraph(t *testing.T) *pregel.Graph {
	t.Helper()
	g := pregel.NewStateGraph[deepState]()
	g.AddNode("make", func(_ context.Context, s deepState) (any, error) {
		v := nestedValue(s.Levels)
		if s.Raw {
			text, err := json.Marshal([]any{"before", v, "after"})
			return deepState{Text: text}, err
		}
		return deepState{List: []any{"before", v, "after"}, Dict: map[string]any{"b": "before", "v": v, "z": "after"}}, nil
	})
	g.AddNode("ask", func(ctx context.Context, s deepState) (any, error) {
		if s.Raw {
			_, err := pregel.Interrupt[string](ctx, s.Text)
			return deepState{}, err
		}
		_, err := pregel.Interrupt[string](ctx, []any{"before", nestedValue(s.Levels), "after"})
		return deepState{}, err
	})
	g.AddSequence(pregel.START, "make", "ask", pregel.END)
	compiled, err := g.Compile(pregel.WithName("steps"))
	require.NoError(t, err)
	return compiled
}

// A value of a Go graph that cannot be stored ends its run with an error that says so. What can be stored is shown as far down as is shown, and what is
// deeper hides nothing else.
func TestDeepValuesOfGoGraphs(t *testing.T) {
	srv := start(t, config.Serve, deepGraph(t), map[string]string{"port": "0", "data": t.TempDir(), "log-level": "error"})
	ask := func(method, path string, body any) string {
		t.Helper()
		b, err := json.Marshal(body)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), method, srv.url()+path, bytes.NewReader(b))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, 200, res.StatusCode, "%s: %.300s", path, text)
		return string(text)
	}
	for _, tt := range []struct {
		levels     int
		raw, fails bool
	}{{10, false, false}, {240, false, false}, {300, false, true}, {3000, false, true}, {10, true, false}, {300, true, false}, {915, true, false}, {1000, true, false}, {1100, true, true}} {
		levels := tt.levels
		var row struct {
			ID string `json:"thread_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(ask("POST", "/threads", map[string]any{})), &row))
		for what, text := range map[string]string{
			"1 stream":  ask("POST", "/threads/"+row.ID+"/runs/stream", map[string]any{"assistant_id": "steps", "input": map[string]any{"levels": levels, "raw": tt.raw}, "stream_mode": []string{"values", "updates", "tasks", "debug"}}),
			"2 state":   ask("GET", "/threads/"+row.ID+"/state", nil),
			"3 history": ask("POST", "/threads/"+row.ID+"/history", map[string]any{}),
			"4 thread":  ask("GET", "/threads/"+row.ID, nil),
			"5 search":  ask("POST", "/threads/search", map[string]any{"ids": []string{row.ID}}),
		} {
			what = fmt.Sprintf("%d levels, %s", levels, what)
			if tt.fails {
				if strings.Contains(what, "1 stream") {
					require.Regexp(t, `event: error\r?\ndata: .*nested too deeply`, text, what)
				}
				continue
			}
			outermost := fmt.Sprintf(`"a%d"`, levels-1)
			require.GreaterOrEqual(t, strings.Count(text, outermost), 2, "%s: %.300s ... %s", what, text, text[max(0, len(text)-700):])
			if levels <= 900 {
				require.Contains(t, text, `"core"`, what)
			} else {
				require.Contains(t, text, fmt.Sprintf(`"a%d"`, levels-900), what)
			}
			for _, line := range strings.Split(text, "\n") {
				line = strings.TrimPrefix(line, "data: ")
				if strings.HasPrefix(line, "{") || strings.HasPrefix(line, "[") {
					require.True(t, json.Valid([]byte(line)), what)
					require.LessOrEqual(t, nesting(line), 990, what)
				}
			}
		}
	}
}

// nesting is how deep JSON whose texts have no brackets is nested.
func nesting(text string) (most int) {
	n := 0
	for _, c := range text {
		switch c {
		case '[', '{':
			n++
			most = max(most, n)
		case ']', '}':
			n--
		}
	}
	return most
}
