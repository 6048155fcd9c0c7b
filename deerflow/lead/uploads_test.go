package lead

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

func withFiles(text string, names ...string) message.Message {
	m := message.Human(text)
	list := make([]map[string]any, len(names))
	for i, n := range names {
		list[i] = map[string]any{"filename": n, "size": 1, "path": "/etc/" + n}
	}
	m.AdditionalKwargs, _ = json.Marshal(map[string]any{"files": list})
	return m
}

// Only files that are there are shown, none through a link or in another folder, and the conversation keeps the words of the person.
func TestUploadsAreShown(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	folder := filepath.Join(home, "user-data", "uploads")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "sub"), 0o755))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	write("plan.pdf", strings.Repeat("x", 2048))
	write("plan.md", "intro\n# One\ntext\n## Two\n"+strings.Repeat("long ", 100)+"\n")
	write("plain.docx", "x")
	write("plain.md", "first\n\nsecond\n")
	write("data.csv", "a,b\n")
	require.NoError(t, os.WriteFile(filepath.Join(home, "secret.txt"), []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(home, "secret.txt"), filepath.Join(folder, "link.txt")))

	m := uploads(func(string, string) string { return home })
	sent := withFiles("look", "plan.pdf", "plain.docx", "data.csv", "ghost.txt", "../secret.txt", "link.txt", "sub", "..", "", "sub/../data.csv", "a\\b")
	update, err := m.BeforeAgent.Run(t.Context(), pregel.Values{"messages": []message.Message{sent}})
	require.NoError(t, err)
	require.Len(t, update.(map[string]any)["uploaded_files"], 3)
	// The next message has none: those of this one are earlier files then.
	update, err = m.BeforeAgent.Run(t.Context(), pregel.Values{"messages": []message.Message{sent, message.Human("thanks")}})
	require.NoError(t, err)
	require.Equal(t, []map[string]any{}, update.(map[string]any)["uploaded_files"])

	list := []message.Message{message.Human("before"), sent, message.AI("ok"), withFiles("ghosts", "ghost.txt")}
	var seen []message.Message
	_, err = m.WrapModelCall(t.Context(), agent.ModelRequest{Messages: list}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
		seen = r.Messages
		return agent.ModelResponse{}, nil
	})
	require.NoError(t, err)
	text := seen[1].Text()
	for _, part := range []string{"plan.pdf (2.0 KB)", "/mnt/user-data/uploads/plan.pdf", "L2: One", "L4: Two", "> first", "> second", "data.csv (0.0 KB)"} {
		require.Contains(t, text, part)
	}
	require.True(t, strings.HasSuffix(text, "look"))
	for _, part := range []string{"ghost", "secret", "link", "sub", "/etc"} {
		require.NotContains(t, text, part)
	}
	require.Equal(t, []string{"before", "ok", "ghosts"}, []string{seen[0].Text(), seen[2].Text(), seen[3].Text()})
	require.Equal(t, "look", list[1].Text())
}

// A large document is read up to a bound.
func TestOutlineOfALargeDocument(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	f, err := os.Create(filepath.Join(folder, "big.md"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<30))
	_, err = f.WriteAt([]byte("# Title\n"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	root, err := os.OpenRoot(folder)
	require.NoError(t, err)
	defer root.Close()
	require.Less(t, len(outline(root, upload{"big.md", 1 << 30})), 10_000)
}
