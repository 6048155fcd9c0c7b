package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/app/doctor"
)

// A person reads findings as they come, and their sum; a program reads one array.
func TestDoctor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"url": "http://127.0.0.1:1"}}}`), 0o600))
	args := []string{"doctor", "--config", file, "--port", "0", "--data", filepath.Join(dir, "data")}
	out, err := execute(t, args...)
	require.NoError(t, err, out)
	port, graph, sum := strings.Index(out, "ok      port"), strings.Index(out, "ok      graph"), strings.Index(out, "\nAll is well.\n")
	require.True(t, 0 < port && port < graph && graph < sum, out)
	out, err = execute(t, append(args, "--json")...)
	require.NoError(t, err)
	var findings []doctor.Finding
	require.NoError(t, json.Unmarshal([]byte(out), &findings))
	require.NotEmpty(t, findings)
	out, err = execute(t, append(args, "--host", "203.0.113.7")...)
	require.ErrorIs(t, err, errUnwell)
	require.True(t, strings.HasSuffix(out, "\n1 problem.\n"), out)
}

// After more than a screen of findings, the problems are named again.
func TestDoctorNamesProblemsAgain(t *testing.T) {
	t.Parallel()
	findings := []doctor.Finding{{Check: "database", Verdict: doctor.Problem, Text: "it is away"}}
	for range aScreen {
		findings = append(findings, doctor.Finding{Check: "graph", Verdict: doctor.Fine, Text: "imports"})
	}
	var out strings.Builder
	printSum(&out, findings)
	require.Equal(t, "\n1 problem:\n  database     it is away\n", out.String())
}
