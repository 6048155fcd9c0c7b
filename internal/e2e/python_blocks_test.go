package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// blocks returns the examples for Python on a page, as printed.
func blocks(t *testing.T, page string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```python\n(.*?)```").FindAllSubmatch(text, -1) {
		out = append(out, string(block[1]))
	}
	return out
}

// Every example for Python in README.md and docs runs in some test: a page that gets one more fails here until its test runs it.
func TestEveryPythonBlockIsTested(t *testing.T) {
	t.Parallel()
	have, want := map[string]int{}, map[string]int{
		"README.md": 1, "docs/event-streaming.md": 1, // conformance/test_readme.py
		"docs/python.md": 2,                                                                                                                                     // TestPythonPage
		"docs/a2a.md":    1, "docs/auth.md": 4, "docs/configuration.md": 1, "docs/encryption.md": 1, "docs/mcp.md": 1, "docs/openai.md": 2, "docs/search.md": 1, // TestPythonBlocks
		"docs/moving.md": 1, // not as printed: conformance/test_moving.py continues an exported thread with PostgresSaver; nor the last of docs/auth.md, which is for graphs
	}
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../../README.md") {
		page = strings.TrimPrefix(filepath.ToSlash(page), "../../")
		if n := len(blocks(t, page)); n > 0 {
			have[page] = n
		}
	}
	require.Equal(t, want, have)
}

// The examples of the pages about protocols, authentication, encryption and search run as printed, with the address of the server in the place of theirs, and do
// what the pages say.
func TestPythonBlocks(t *testing.T) {
	t.Parallel()
	const agent = `"graphs": {"agent": {"agent": {"model": "scripted:script.json"}}}`
	serve := func(t *testing.T, config string, files map[string]string) (started, project) {
		t.Helper()
		pr := project{t, t.TempDir()}
		pr.write("script.json", `[{"when": "^(.*)$", "content": "You said: $1"}]`)
		for name, text := range files {
			pr.write(name, text)
		}
		pr.write("langgraph.json", "{"+agent+config+"}")
		p := startIn(t, pr, python(t), "dev")
		p.listens()
		p.eventually("ready", func() bool { status, _ := p.try("GET", "/readyz", nil); return status == http.StatusOK })
		return p, pr
	}
	run := func(t *testing.T, p started, code string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "example.py")
		require.NoError(t, os.WriteFile(file, []byte(regexp.MustCompile(`http://127\.0\.0\.1:2024|https://agents\.example\.com`).ReplaceAllString(code, p.url)), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, python(t), file).CombinedOutput()
		require.NoError(t, err, "%s\n%s", code, out)
		return string(out)
	}

	t.Run("protocols", func(t *testing.T) {
		t.Parallel()
		p, _ := serve(t, `, "store": {"index": {"embed": "./embed.py:embed", "dims": 2, "fields": ["text"]}}`, map[string]string{
			"embed.py": "def embed(texts):\n    return [[1.0, float('pasta' in t or 'eat' in t)] for t in texts]\n",
		})
		require.Contains(t, run(t, p, blocks(t, "docs/a2a.md")[0]), "You said: hello")
		require.Contains(t, run(t, p, blocks(t, "docs/mcp.md")[0]), "You said: hello")
		openai := blocks(t, "docs/openai.md")
		require.Equal(t, "You said: hello\n", run(t, p, openai[0]))
		out := run(t, p, openai[0]+openai[1]+"print(second.previous_response_id == first.id, second.output_text)\n")
		require.Contains(t, out, "True You said: What is my name?")
		search := strings.Replace(strings.TrimSpace(blocks(t, "docs/search.md")[0]), "await client.store.search_items", "print(await client.store.search_items", 1)
		search = strings.Replace(search, "  # in a graph", ")  # in a graph", 1)
		out = run(t, p, "import asyncio\nfrom langgraph_sdk import get_client\n\nasync def main():\n    client = get_client(url=\"http://127.0.0.1:2024\")\n    "+
			strings.ReplaceAll(search, "\n", "\n    ")+"\n\nasyncio.run(main())\n")
		require.Contains(t, out, "Ann likes pasta")
		require.Contains(t, out, "'score': ")
	})

	t.Run("handlers", func(t *testing.T) {
		t.Parallel()
		auth := blocks(t, "docs/auth.md")
		kms := "class kms:\n    async def encrypt(blob, context): return b'k' + bytes(b ^ 7 for b in blob)\n    async def decrypt(blob, context): return bytes(b ^ 7 for b in blob[1:])\n\n"
		p, _ := serve(t, `, "auth": {"path": "./auth.py:auth"}, "http": {"app": "./webapp.py:app"}, "encryption": {"path": "./encryption.py:encryption"}`, map[string]string{
			"auth.py": strings.Replace(auth[1], `"ada"}`, `"ada", "token-of-bob": "bob"}`, 1) + auth[2], "webapp.py": blocks(t, "docs/configuration.md")[0], "encryption.py": kms + blocks(t, "docs/encryption.md")[0],
		})
		p.call("POST", "/threads", map[string]any{}, http.StatusUnauthorized)
		require.Equal(t, map[string]any{"hello": "you"}, p.call("GET", "/hello/you", nil, http.StatusOK))
		out := run(t, p, `import asyncio
from langgraph_sdk import get_client

async def main():
    client = get_client(url="http://127.0.0.1:2024", headers={"authorization": "Bearer token-of-ada"})
    thread = await client.threads.create()
    print((await client.runs.wait(thread["thread_id"], "agent", input={"messages": "hello"}))["messages"][-1]["content"])
    print((await client.threads.get(thread["thread_id"]))["metadata"]["owner"])

asyncio.run(main())
`)
		require.Equal(t, "You said: hello\nada\n", out)
		out = run(t, p, `import asyncio
from langgraph_sdk import get_client

async def main():
    ada, bob = (get_client(url="http://127.0.0.1:2024", headers={"authorization": f"Bearer token-of-{name}"}).store for name in ("ada", "bob"))
    await ada.put_item(["ada", "memories"], "food", {"likes": "pasta"})
    print((await ada.get_item(["ada", "memories"], "food"))["value"], len((await ada.search_items(["ada"]))["items"]))
    for refused in (
        bob.get_item(["ada", "memories"], "food"), bob.put_item(["ada", "memories"], "food", {}), bob.delete_item(["ada", "memories"], "food"),
        bob.search_items(["ada"]), bob.search_items([]), bob.list_namespaces(), bob.list_namespaces(prefix=["ada"]),
    ):
        try:
            print("not refused", await refused)
        except Exception as e:
            print(e.response.status_code, end=" ")

asyncio.run(main())
`)
		require.Equal(t, "{'likes': 'pasta'} 1\n"+strings.Repeat("403 ", 7), out)
	})

	t.Run("keys", func(t *testing.T) {
		t.Parallel()
		p, pr := serve(t, `, "auth": {"api_keys": true}`, nil)
		bin, err := build()
		require.NoError(t, err)
		create := exec.CommandContext(t.Context(), bin, "keys", "create", "--name", "page", "--config", filepath.Join(pr.dir, "langgraph.json"), "--data", filepath.Join(pr.dir, "data"))
		key, err := create.Output()
		require.NoError(t, err)
		client := strings.Replace(blocks(t, "docs/auth.md")[0], "us_…", strings.TrimSpace(string(key)), 1)
		const use = "\nimport asyncio\nprint(len(asyncio.run(client.threads.search())))\n"
		require.Equal(t, "0\n", run(t, p, client+use))
	})
}
