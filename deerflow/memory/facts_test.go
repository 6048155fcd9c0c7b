package memory_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/memory"
	"understudy/internal/fault"
)

// Newer releases of DeerFlow keep facts in Markdown files, and its own agent continues to: what is changed here is changed there, and what that agent adds is known here.
func TestFactsInFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
	}
	write("memory.json", `{"version":"2.0","revision":4,"lastUpdated":"2026-08-01T00:00:00Z","user":{"workContext":{"summary":"Builds ships","updatedAt":"x"}},"history":{}}`)
	write("facts/ab/fact_1.md", "---\nid: fact_1\nschemaVersion: 2\ncategory: other\ncategoryExtension: knowledge\nconfidence: 0.9\nstatus: active\nsource:\n  type: conversation\n  threadId: t7\ncreatedAt: '2026-08-01T00:00:00Z'\n---\n\n# Knows Go\n\nKnows Go.\nAnd C.\n")
	write("facts/cd/fact_2.md", "---\nid: fact_2\ncategory: preference\nconfidence: 0.5\nsource: {type: manual, threadId: null}\nsourceError: said coffee\n---\n\n# Tea\n\nDrinks tea.\n")
	write("facts/cd/broken.md", "no front matter")
	write("facts/cd/.fact_3.md.tmp", "---\nid: fact_3\n---\n\nx\n")
	write("facts/index.md", "---\nid: fact_4\n---\n\nx\n")

	in := &memory.Folders{File: func(string) string { return filepath.Join(dir, "memory.json") }, Facts: func(string) string { return filepath.Join(dir, "facts") }}
	book := &memory.Book{Now: time.Now, In: func(string) memory.Documents { return in }}
	m, err := book.Read(t.Context(), "u")
	require.NoError(t, err)
	wrong := "said coffee"
	require.Equal(t, []memory.Fact{
		{ID: "fact_1", Content: "Knows Go.\nAnd C.", Category: "knowledge", Confidence: 0.9, CreatedAt: "2026-08-01T00:00:00Z", Source: "t7"},
		{ID: "fact_2", Content: "Drinks tea.", Category: "preference", Confidence: 0.5, Source: "manual", SourceError: &wrong},
	}, m.Facts)
	require.Equal(t, "Builds ships", m.User["workContext"].Summary)

	// What is deleted, changed and added here is so in the files.
	_, err = book.Delete(t.Context(), "u", "fact_2")
	require.NoError(t, err)
	content, category := "Knows Go: \"well\".\nAnd Rust.", "skills"
	_, err = book.Edit(t.Context(), "u", "fact_1", memory.Edit{Content: &content, Category: &category})
	require.NoError(t, err)
	other := "Lives in Rome"
	m, err = book.Add(t.Context(), "u", memory.Edit{Content: &other})
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(dir, "facts/cd/fact_2.md"))
	require.FileExists(t, filepath.Join(dir, "facts/cd/broken.md"))
	text, err := os.ReadFile(filepath.Join(dir, "facts/ab/fact_1.md"))
	require.NoError(t, err)
	for _, line := range []string{`category: "other"`, `categoryExtension: "skills"`, "confidence: 0.9", `createdAt: "2026-08-01T00:00:00Z"`, "revision: 1", `source: {"threadId":"t7","type":"conversation"}`, "schemaVersion: 2", `user_id: "u"`, `agent_name: "__default__"`} {
		require.Contains(t, string(text), "\n"+line+"\n")
	}
	require.Contains(t, string(text), "\n# Knows Go: \"well\".\n\n"+content+"\n")
	again, err := book.Read(t.Context(), "u")
	require.NoError(t, err)
	require.ElementsMatch(t, m.Facts, again.Facts)
	text, err = os.ReadFile(filepath.Join(dir, "memory.json"))
	require.NoError(t, err)
	require.Contains(t, string(text), `"version": "2.0"`)
	require.Contains(t, string(text), `"revision": 7`)
	require.NotContains(t, string(text), "facts")

	write("facts/ef/fact_9.md", "---\nid: fact_9\ncategory: goal\nconfidence: 1\n---\n\n# Sails\n\nSails.\n") // by the agent
	m, err = book.Read(t.Context(), "u")
	require.NoError(t, err)
	require.Len(t, m.Facts, 3)

	odd := &memory.Memory{Facts: []memory.Fact{{ID: "../../x", Content: "x"}}}
	_, err = book.Replace(t.Context(), "u", odd)
	require.True(t, fault.Is(err, fault.Unprocessable), err)

	_, err = book.Clear(t.Context(), "u")
	require.NoError(t, err)
	m, err = book.Read(t.Context(), "u")
	require.NoError(t, err)
	require.Empty(t, m.Facts)
}
