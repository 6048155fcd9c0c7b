package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/settings"
)

// An error of the syntax says what to write, at the line of the mistake, which the library may notice far behind.
func TestSyntaxFix(t *testing.T) {
	t.Parallel()
	const rest = "  - name: m\n    use: langchain_openai:ChatOpenAI\n    model: m\nsandbox:\n  use: x\nmemory:\n  enabled: true\n"
	for name, c := range map[string]struct{ text, want string }{
		"no colon":         {"# c\n\nlog_level: info\nmodels\n" + rest, "line 4: write a colon after models"},
		"no colon, nested": {"models:\n" + rest + "tools:\n  groups\n    a: 1\n", "line 10: write a colon after groups"},
		"list below":       {"models\n- name: m\n  use: x\nsandbox:\n  use: x\n", "line 1: write a colon after models"},
		"a tab":            {"models:\n\t- name: m\n", "line 2: write spaces in place of the tab"},
		"a bracket":        {"models: [\n", "correct it there, or in a line above: a colon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := settings.Parse([]byte(c.text), func(string) (string, bool) { return "", false })
			require.ErrorContains(t, err, c.want)
		})
	}
}
