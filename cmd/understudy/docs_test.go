package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"understudy/internal/config"
)

var (
	// commandInText is a command as it stands in a page: after a prompt, in backquotes or on a line of its own, up to what a shell does not pass to it.
	commandInText = regexp.MustCompile("(?:^|[`$(=]|&& |\\| ?|  |: )understudy ((?:[a-z]+\\b|--)(?:[^`\n|;&()#]|\\$\\([^)]*\\))*)")
	jsonBlock     = regexp.MustCompile("(?s)```json\n(.*?)```")
)

// pages returns the texts that users paste from, by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../examples/*.md", "templates/*/README.md", "../../deploy/*/*", "../../deploy/*"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			if text, err := os.ReadFile(name); err == nil && !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "CHANGELOG.md") { // what was may be gone
				out[name] = string(text)
			}
		}
	}
	every(func(cmd *cobra.Command) { out["help of "+cmd.CommandPath()] = cmd.Example })
	return out
}

// Commands in pages, templates and help texts are those of this program, with flags that they have.
func TestCommandsInDocs(t *testing.T) {
	t.Parallel()
	tried := 0
	for name, text := range pages(t) {
		for line := range strings.Lines(text) {
			for _, m := range commandInText.FindAllStringSubmatch(line, -1) {
				words := strings.Fields(m[1])
				cmd, _, err := newRoot(io.Discard, io.Discard).Find(words[:1])
				if err != nil || !cmd.HasParent() {
					if len(words) > 1 && strings.HasPrefix(words[1], "--") {
						t.Errorf("%s: there is no command %q: %s", name, words[0], strings.TrimSpace(line))
					}
					continue // a sentence about understudy
				}
				if cmd.HasSubCommands() && len(words) > 1 {
					if sub, _, err := cmd.Find(words[1:2]); err == nil {
						cmd = sub
					}
				}
				cmd.InitDefaultHelpFlag()
				for _, word := range words[1:] {
					flag, _, _ := strings.Cut(strings.Trim(word, `,.'"`), "=")
					if long, ok := strings.CutPrefix(flag, "--"); ok && long != "" {
						require.NotNil(t, cmd.Flags().Lookup(strings.TrimSuffix(long, "…")), "%s: %s has no %s: %s", name, cmd.CommandPath(), flag, line)
					} else if short, ok := strings.CutPrefix(flag, "-"); ok && len(short) == 1 && short != "-" {
						require.NotNil(t, cmd.Flags().ShorthandLookup(short), "%s: %s has no %s: %s", name, cmd.CommandPath(), flag, line)
					}
				}
				tried++
			}
		}
	}
	require.Greater(t, tried, 200)
}

// JSON in pages is JSON, and what is a langgraph.json has no unknown key.
func TestJSONInDocs(t *testing.T) {
	t.Parallel()
	files := 0
	for name, text := range pages(t) {
		for _, m := range jsonBlock.FindAllStringSubmatch(text, -1) {
			whole := strings.TrimSpace(m[1])
			if !strings.HasPrefix(whole, "{") && !strings.HasPrefix(whole, "[") {
				whole = "{" + strings.TrimSuffix(whole, ",") + "}" // members of an object
			}
			var v any
			if strings.Contains(whole, "…}") || strings.Contains(whole, "…]") || strings.Contains(whole, ", …") {
				continue // it says itself that it is not whole
			}
			require.NoError(t, json.Unmarshal([]byte(whole), &v), "%s: %s", name, whole)
			if object, ok := v.(map[string]any); !ok || object["graphs"] == nil {
				continue
			}
			files++
			file := filepath.Join(t.TempDir(), "langgraph.json")
			require.NoError(t, os.WriteFile(file, []byte(whole), 0o600))
			_, warnings, _ := config.Load(config.Source{Mode: config.Serve, File: file, Lookup: func(string) (string, bool) { return "", false }}) // files and variables are not there
			for _, w := range warnings {
				require.NotContains(t, w.Text, "unknown key", name)
			}
		}
	}
	require.Greater(t, files, 3)
}
