package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesAreGenerated(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]byte{"dashboard.json": dashboard(), "alerts.yaml": alertRules()} {
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run go generate ./deploy/monitoring", name)
	}
}

// The documentation has the same alerts, in the same order.
func TestAlertsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/monitoring.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(page), "### Alerts\n")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n## ")
	var want []string
	for _, a := range alerts {
		wait := strings.TrimSuffix(a.wait, "m") + " m"
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", strings.ReplaceAll(a.expr, "|", `\|`), wait, a.summary))
	}
	require.Equal(t, want, regexp.MustCompile("(?m)^\\| `.*$").FindAllString(table, -1))
}
