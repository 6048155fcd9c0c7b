package memory_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/memory"
)

// Newer releases of DeerFlow keep facts in Markdown files. They are known here from the first start on, and belong to the memory's file as soon as it is changed.
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

	book := &memory.Book{Now: time.Now, File: func(string) string { return filepath.Join(dir, "memory.json") }, Facts: func(string) string { return filepath.Join(dir, "facts") }}
	m, err := book.Read("u")
	require.NoError(t, err)
	wrong := "said coffee"
	require.Equal(t, []memory.Fact{
		{ID: "fact_1", Content: "Knows Go.\nAnd C.", Category: "knowledge", Confidence: 0.9, CreatedAt: "2026-08-01T00:00:00Z", Source: "t7"},
		{ID: "fact_2", Content: "Drinks tea.", Category: "preference", Confidence: 0.5, Source: "manual", SourceError: &wrong},
	}, m.Facts)
	require.Equal(t, "Builds ships", m.User["workContext"].Summary)

	// One that is deleted here does not come back.
	_, err = book.Delete("u", "fact_2")
	require.NoError(t, err)
	m, err = book.Read("u")
	require.NoError(t, err)
	require.Len(t, m.Facts, 1)
	require.Equal(t, "1.0", m.Version)

	_, err = book.Clear("u")
	require.NoError(t, err)
	m, err = book.Read("u")
	require.NoError(t, err)
	require.Empty(t, m.Facts)
}
