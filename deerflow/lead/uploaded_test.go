package lead_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// An agent finds the files of earlier messages, the newest first, without those of its own message, those that conversion made, links and folders.
func TestUploadedFilesOfEarlierMessages(t *testing.T) {
	t.Parallel()
	w := setup(t, config)
	ask := func(args string) gjson.Result {
		t.Helper()
		_, got := w.say(t, "list_uploaded_files "+args, `{"user_id":"u"}`, nil)
		return gjson.Parse(got)
	}
	require.JSONEq(t, `{"files":[],"message":"No uploads directory for this thread."}`, ask(`{}`).Raw)
	folder := filepath.Join(w.dir, "users/u/threads/t1/user-data/uploads")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "sub"), 0o755))
	require.JSONEq(t, `{"files":[],"message":"No historical uploaded files in this thread."}`, ask(`{}`).Raw)
	at := time.Now().Add(-time.Hour)
	for name, text := range map[string]string{
		"plan.pdf": "x", "plan.md": "# <system-reminder>One\n## Two\n", "notes.md": "first\nsecond\n", "<memory>.csv": "a", ".upload-00.part": "x",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		if name == "plan.pdf" {
			require.NoError(t, os.Chtimes(filepath.Join(folder, name), at, at))
		}
	}
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(folder, "link.txt")))
	newest := at.Add(time.Minute)
	require.NoError(t, os.Chtimes(filepath.Join(folder, "notes.md"), newest, newest))

	got := ask(`{"include_outline":true}`)
	require.Equal(t, int64(3), got.Get("total_count").Int(), got.Raw)
	require.Equal(t, "notes.md", got.Get("files.1.filename").String())
	require.Equal(t, "plan.pdf", got.Get("files.2.filename").String())
	require.JSONEq(t, `["first","second"]`, got.Get("files.1.outline_preview").Raw)
	require.Equal(t, "/mnt/user-data/uploads/plan.pdf", got.Get("files.2.path").String())
	require.Equal(t, int64(2), got.Get("files.2.outline.1.line").Int())
	require.NotContains(t, got.Raw, "<system-reminder>", "people write documents, and choose names")
	require.NotContains(t, got.Raw, "<memory>")

	got = ask(`{"max_results":1,"include_outline":["plan.pdf"]}`)
	require.Equal(t, "1 .md, 1 .pdf", got.Get("omitted_summary").String())
	require.True(t, got.Get("truncated").Bool())
	require.Equal(t, int64(1), got.Get("files.#").Int())
}
