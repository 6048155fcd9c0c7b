package server

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/finding"
)

type fakeDoctor struct{ *services }

func (f fakeDoctor) Examine(context.Context) ([]finding.Finding, error) {
	return []finding.Finding{{Check: "data", Verdict: finding.Fine, Text: "it can be written"}, {Check: "graph", Verdict: finding.Problem, Text: "<a> does not import", Fix: "fix it", Details: []string{"line"}}}, f.note()
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	w := setup(t)
	res, body := w.ask(t, "POST", "/understudy/doctor", "{}")
	require.Equal(t, 200, res.StatusCode, body)
	require.JSONEq(t, `{"findings": [{"check": "data", "verdict": "ok", "text": "it can be written"},
		{"check": "graph", "verdict": "problem", "text": "<a> does not import", "fix": "fix it", "details": ["line"]}]}`, body)
	res, body = w.ask(t, "GET", "/understudy/doctor", "")
	require.Equal(t, 405, res.StatusCode, body) // a link must not start processes
}
