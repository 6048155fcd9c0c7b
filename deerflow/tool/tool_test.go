package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/deerflow/sandbox"
	"understudy/deerflow/tool"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/address"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ws, out = sandbox.Workspace, sandbox.Outputs

// box is a thread's tools by name.
type box struct {
	tools map[string]agent.Tool
	dir   string
}

func setup(t *testing.T, o tool.Options) *box {
	t.Helper()
	b := &box{tools: map[string]agent.Tool{}, dir: t.TempDir()}
	local := sandbox.NewLocal(sandbox.Options{})
	t.Cleanup(local.Close)
	o.Open = func(context.Context) (tool.Sandbox, error) {
		return local.Open(sandbox.Place{ID: "local:u:t", Dir: b.dir})
	}
	for _, one := range append(tool.Files(o), tool.Bash(o), tool.PresentFiles(o), tool.ViewImage(o), tool.AskClarification()) {
		b.tools[one.Name] = one
	}
	return b
}

// call runs a tool as the agent does: with arguments that match its schema.
func (b *box) call(t *testing.T, name string, args map[string]any) any {
	t.Helper()
	raw, err := json.Marshal(args)
	require.NoError(t, err)
	var s jsonschema.Schema
	require.NoError(t, json.Unmarshal(b.tools[name].Schema, &s))
	resolved, err := s.Resolve(nil)
	require.NoError(t, err)
	require.NoError(t, resolved.Validate(args), "%s %s", name, raw)
	got, err := b.tools[name].Run(t.Context(), message.ToolCall{ID: "c1", Name: name, Args: raw})
	require.NoError(t, err)
	return got
}

type m = map[string]any

// The texts are what models and clients know.
func TestTexts(t *testing.T) {
	t.Parallel()
	b := setup(t, tool.Options{})
	for _, tt := range []struct {
		tool string
		args m
		want string
	}{
		{"ls", m{"description": "d", "path": ws}, "(empty)"},
		{"write_file", m{"description": "d", "path": ws + "/a.txt", "content": "one\ntwo\nthree\n"}, "OK"},
		{"write_file", m{"path": ws + "/a.txt", "content": "four\n", "append": true}, "OK"},
		{"ls", m{"path": ws}, ws + "/a.txt"},
		{"read_file", m{"path": ws + "/a.txt"}, "one\ntwo\nthree\nfour\n"},
		{"read_file", m{"path": ws + "/a.txt", "start_line": 2, "end_line": 2}, "two"},
		{"read_file", m{"path": ws + "/a.txt", "start_line": nil, "end_line": nil}, "one\ntwo\nthree\nfour\n"},
		{"read_file", m{"path": ws + "/a.txt", "start_line": 0}, "(start_line must be >= 1)"},
		{"read_file", m{"path": ws + "/a.txt", "end_line": 0}, "(end_line must be >= 1)"},
		{"read_file", m{"path": ws + "/a.txt", "start_line": 3, "end_line": 2}, "(start_line > end_line: no lines in range)"},
		{"read_file", m{"path": ws + "/a.txt", "start_line": 99}, "(start_line exceeds file length)"},
		{"read_file", m{"path": ws + "/none.txt"}, "Error: File not found: " + ws + "/none.txt"},
		{"read_file", m{"path": ws}, "Error: Path is a directory, not a file: " + ws},
		{"read_file", m{"path": "/etc/passwd"}, "Error: Permission denied reading file: /etc/passwd"},
		{"read_file", m{"path": ws + "/../../x"}, "Error: Permission denied reading file: " + ws + "/../../x"},
		{"ls", m{"path": "/"}, "Error: Permission denied: /"},
		{"ls", m{"path": ws + "/none"}, "Error: Directory not found: " + ws + "/none"},
		{"ls", m{"path": ws + "/a.txt"}, "Error: Path is not a directory: " + ws + "/a.txt"},
		{"str_replace", m{"path": ws + "/a.txt", "old_str": "two", "new_str": "zwei"}, "OK"},
		{"str_replace", m{"path": ws + "/a.txt", "old_str": "two", "new_str": "zwei"}, "Error: String to replace not found in file: " + ws + "/a.txt"},
		{"str_replace", m{"path": ws + "/a.txt", "old_str": "o", "new_str": "0"}, "Error: String to replace is not unique in file: " + ws + "/a.txt. Add more of the text around it, or set replace_all."},
		{"str_replace", m{"path": ws + "/a.txt", "old_str": "o", "new_str": "0", "replace_all": true}, "OK"},
		{"str_replace", m{"path": ws + "/a.txt", "old_str": "", "new_str": "0"}, "Error: old_str is empty"},
		{"str_replace", m{"path": ws + "/no.txt", "old_str": "a", "new_str": "0"}, "Error: File not found: " + ws + "/no.txt"},
		{"write_file", m{"path": "/tmp/x", "content": "x"}, "Error: Permission denied writing to file: /tmp/x"},
		{"write_file", m{"path": ws + "/l.txt", "content": strings.Repeat("x", 81_921)}, "Error: write_file content (81921 bytes) exceeds the 81920-byte single-call limit. Write the first part now, and add the others with append=true."},
		{"glob", m{"pattern": "*.txt", "path": ws}, "Found 1 paths under " + ws + "\n1. " + ws + "/a.txt"},
		{"glob", m{"pattern": "*.go", "path": ws}, "No files matched under " + ws},
		{"glob", m{"pattern": "[", "path": ws}, "Error: Invalid glob pattern"},
		{"grep", m{"pattern": "ZWEI", "path": ws}, "Found 1 matches under " + ws + "\n" + ws + "/a.txt:2: zwei"},
		{"grep", m{"pattern": "ZWEI", "path": ws, "case_sensitive": true}, "No matches found under " + ws},
		{"grep", m{"pattern": "zwei", "path": ws, "glob": "*.go"}, "No matches found under " + ws},
		{"grep", m{"pattern": "e", "path": ws, "glob": nil, "max_results": 1}, "Found 1 matches under " + ws + " (showing first 1)\n" + ws + "/a.txt:1: 0ne\nResults truncated. Narrow the path or add a glob filter."},
		{"bash", m{"command": "pwd"}, ws + "\n"},
		{"bash", m{"command": "rm -rf /"}, "Command blocked: security violation detected. Please use a safer alternative approach."},
		{"bash", m{"command": "cat /etc/passwd"}, "Error: Unsafe absolute paths in command: /etc/passwd. Use paths under /mnt/user-data"},
		{"bash", m{"command": "cat ../x"}, "Error: Access denied: path traversal detected"},
		{"bash", m{"command": "chmod 777 a.txt"}, "(no output)\n\n⚠️ Warning: `chmod 777 a.txt` is a medium-risk command that may modify the runtime environment."},
		{"present_files", m{"filepaths": []any{ws + "/a.txt"}}, "Error: Only files in " + out + " can be presented: " + ws + "/a.txt"},
		{"present_files", m{"filepaths": []any{out + "/../workspace/a.txt"}}, "Error: Only files in " + out + " can be presented: " + out + "/../workspace/a.txt"},
		{"present_files", m{"filepaths": []any{out + "/none"}}, "Error: File not found: " + out + "/none"},
		{"view_image", m{"image_path": "/etc/hostname"}, "Error: Only image paths under " + ws + ", /mnt/user-data/uploads, " + out + " are allowed"},
		{"view_image", m{"image_path": ws + "/a.txt"}, "Error: Unsupported image format: .txt. Supported formats: .jpg, .jpeg, .png, .webp, .gif"},
		{"view_image", m{"image_path": ws + "/none.png"}, "Error: Image file not found: " + ws + "/none.png"},
	} {
		require.Equal(t, tt.want, b.call(t, tt.tool, tt.args), "%s %v", tt.tool, tt.args)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := setup(t, tool.Options{ReadLimit: 1000, ListLimit: 1000, BashLimit: 1000})
	for i := range 100 {
		b.call(t, "write_file", m{"path": fmt.Sprintf("%s/file-%03d.txt", ws, i), "content": strings.Repeat("é", 2000)})
	}
	for name, args := range map[string]m{"read_file": {"path": ws + "/file-001.txt"}, "ls": {"path": ws}, "bash": {"command": "seq 10000"}} {
		got := b.call(t, name, args).(string)
		require.LessOrEqual(t, len([]rune(got)), 1000, name)
		require.Contains(t, got, "truncated", name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "user-data/workspace/binary"), []byte{0, 1, 255}, 0o600))
	require.Contains(t, b.call(t, "read_file", m{"path": ws + "/binary"}), "Error: Cannot read")
	require.Contains(t, b.call(t, "glob", m{"pattern": "*", "path": ws, "max_results": 3}), "(showing first 3)")
}

func updates(t *testing.T, got any) pregel.Values {
	t.Helper()
	cmd, ok := got.(*pregel.Command)
	require.True(t, ok, "%v", got)
	return cmd.Update.(pregel.Values)
}

func TestStateOfTools(t *testing.T) {
	t.Parallel()
	b := setup(t, tool.Options{})
	b.call(t, "write_file", m{"path": out + "/r.md", "content": "x"})
	u := updates(t, b.call(t, "present_files", m{"filepaths": []any{out + "//r.md", filepath.Join(b.dir, "user-data/outputs/r.md")}}))
	require.Equal(t, []string{out + "/r.md", out + "/r.md"}, u["artifacts"])
	require.Equal(t, "Successfully presented files", u["messages"].([]message.Message)[0].Text())

	png := append([]byte("\x89PNG\r\n\x1a\n"), 1, 2)
	for name, content := range map[string][]byte{"a.png": png, "b.jpg": png, "c.png": []byte("no image")} {
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "user-data/uploads", name), content, 0o600))
	}
	at := sandbox.Uploads + "/a.png"
	u = updates(t, b.call(t, "view_image", m{"image_path": at}))
	image := u["viewed_images"].(map[string]tool.Image)[at]
	require.Equal(t, "image/png", image.Type)
	require.Equal(t, "iVBORw0KGgoBAg==", image.Base64)
	require.Equal(t, "Error: Image contents are image/png, but file extension indicates image/jpeg", b.call(t, "view_image", m{"image_path": sandbox.Uploads + "/b.jpg"}))
	require.Equal(t, "Error: File contents do not match a supported image format", b.call(t, "view_image", m{"image_path": sandbox.Uploads + "/c.png"}))
	large := filepath.Join(b.dir, "user-data/uploads/large.png")
	require.NoError(t, os.WriteFile(large, png, 0o600))
	require.NoError(t, os.Truncate(large, 20<<20+1))
	require.Equal(t, "Error: Image file is too large: 20971521 bytes. Maximum supported size is 20971520 bytes", b.call(t, "view_image", m{"image_path": sandbox.Uploads + "/large.png"}))
}

func TestClarification(t *testing.T) {
	t.Parallel()
	b := setup(t, tool.Options{})
	for _, tt := range []struct {
		args m
		want string
	}{
		{m{"question": "Which?", "clarification_type": "approach_choice", "options": []any{"red", "blue", "red", " "}}, "🔀 Which?\n\n  1. red\n  2. blue"},
		{m{"question": "Sure?", "clarification_type": "risk_confirmation", "context": "It deletes all."}, "⚠️ It deletes all.\n\nSure?"},
		{m{"question": "What?", "clarification_type": "missing_info", "options": `["a"]`, "context": nil}, "❓ What?\n\n  1. a"},
		{m{"question": "What?", "clarification_type": "suggestion", "options": "only"}, "💡 What?\n\n  1. only"},
		{m{"question": "What?", "clarification_type": "ambiguous_requirement", "options": nil}, "🤔 What?"},
	} {
		got := b.call(t, "ask_clarification", tt.args).(message.Message)
		require.Equal(t, tt.want, got.Text())
		require.Equal(t, "clarification:c1", got.ID)
		require.Equal(t, "ask_clarification", got.Name)
	}
	require.True(t, b.tools["ask_clarification"].Direct)
}

// The web UI shows a question as a card: to write an answer, to choose one, or to fill in a form. A form that it could not show as a whole is none.
func TestClarificationCard(t *testing.T) {
	t.Parallel()
	b := setup(t, tool.Options{})
	card := func(args m) (card, text string) {
		args["question"], args["clarification_type"] = "What?", "missing_info"
		got := b.call(t, "ask_clarification", args).(message.Message)
		return gjson.GetBytes(got.Artifact, "human_input").Raw, got.Text()
	}
	const head = `"kind":"human_input_request","source":"ask_clarification","request_id":"clarification:c1","clarification_type":"missing_info","question":"What?",`
	got, _ := card(m{"context": "Why."})
	require.JSONEq(t, `{"version":1,`+head+`"input_mode":"free_text","tool_call_id":"c1","context":"Why."}`, got)
	got, _ = card(m{"options": []any{"red", "blue"}})
	require.JSONEq(t, `{"version":1,`+head+`"input_mode":"choice_with_other","tool_call_id":"c1",
		"options":[{"id":"option-1","label":"red","value":"red"},{"id":"option-2","label":"blue","value":"blue"}]}`, got)
	const fields = `[{"name":"day","type":"date","required":"true"},{"name":"tea","label":"Which tea","type":"multi_select","options":["green","black","green"]},
		{"name":"size","type":"huge","placeholder":"small"},{"name":"none","type":"select"}]`
	for _, given := range []any{fields, gjson.Parse(fields).Value()} { // some models send it as text
		got, text := card(m{"fields": given, "options": []any{"red"}})
		require.JSONEq(t, `{"version":2,`+head+`"input_mode":"form","tool_call_id":"c1","fields":[
			{"name":"day","label":"day","type":"date","required":true},
			{"name":"tea","label":"Which tea","type":"multi_select","required":false,"options":[{"id":"tea-option-1","label":"green","value":"green"},{"id":"tea-option-2","label":"black","value":"black"}]},
			{"name":"size","label":"size","type":"text","required":false,"placeholder":"small"},
			{"name":"none","label":"none","type":"text","required":false}]}`, got)
		require.Equal(t, "❓ What?\n\n  1. day (required)\n  2. Which tea — options: green / black (multiple allowed)\n  3. size\n  4. none\n\nPlease reply with a value for each field.", text)
	}
	list := func(n int, field string) string { // n fields with names of their own
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(field, "#", strconv.Itoa(i)))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	long := strings.Repeat("ü", 200)
	for _, tt := range []struct {
		fields string
		form   bool
	}{
		{list(16, `{"name":"f#"}`), true},
		{list(17, `{"name":"f#"}`), false},
		{`[{"name":"` + long + `"}]`, true},
		{`[{"name":"` + long + `x"}]`, false},
		{`[{"name":"a","label":"` + long + `x"}]`, false},
		{`[{"name":"a","placeholder":"` + long + `x"}]`, false},
		{`[{"name":"a","type":"select","options":` + list(24, `"#"`) + `}]`, true},
		{`[{"name":"a","type":"select","options":` + list(25, `"#"`) + `}]`, false},
		{`[{"name":"a","type":"select","options":["` + long + `x"]}]`, false},
		{`[{"name":"a","options":["` + long + `x"]}]`, true},
		{list(16, `{"name":"#","type":"select","options":`+list(24, `"`+long[:80]+`#"`)+`}`), false}, // more than 16 KiB
		{`[{"name":"a"},{"name":"a"}]`, false},
		{`[{"name":"__proto__"}]`, false},
		{`[{"name":" "}]`, false},
		{`[{"label":"a"}]`, false},
		{`[]`, false},
		{`null`, false},
		{`"[{"`, false},
		{`"{}"`, false},
		{`"7"`, false},
		{`"[7]"`, false},
	} {
		got, _ := card(m{"fields": gjson.Parse(tt.fields).Value()})
		require.Equal(t, tt.form, gjson.Get(got, "input_mode").Str == "form", "%.100s", tt.fields)
	}
}

// description comes first, and schemas are objects that say what is required.
func TestSchemas(t *testing.T) {
	t.Parallel()
	b := setup(t, tool.Options{})
	for name, required := range map[string][]string{
		"bash": {"command"}, "ls": {"path"}, "glob": {"pattern", "path"}, "grep": {"pattern", "path"}, "read_file": {"path"}, "write_file": {"path", "content"},
		"str_replace": {"path", "old_str", "new_str"}, "present_files": {"filepaths"}, "view_image": {"image_path"}, "ask_clarification": {"question", "clarification_type"},
	} {
		var s struct {
			Type       string
			Required   []string
			Properties map[string]any
		}
		require.NoError(t, json.Unmarshal(b.tools[name].Schema, &s))
		require.Equal(t, "object", s.Type)
		require.Equal(t, required, s.Required, name)
		if s.Properties["description"] != nil {
			require.True(t, strings.HasPrefix(string(b.tools[name].Schema), `{"type":"object","properties":{"description":`), name)
		}
	}
}

func TestWeb(t *testing.T) {
	t.Parallel()
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+fmt.Sprint(body))
		switch r.URL.Path {
		case "/search":
			fmt.Fprint(w, `{"results":[{"title":"T","url":"https://x","content":"C"},{"title":"U","url":"https://y","content":"D"}]}`)
		case "/images":
			fmt.Fprint(w, `{"images":[{"title":"T","imageUrl":"https://x/a.png","thumbnailUrl":"http://10.0.0.1/t"},{"imageUrl":"http://localhost/b"},{"imageUrl":"http://0x7f000001/"},{"imageUrl":"file:///etc"},{"thumbnailUrl":"https://y/t"}]}`)
		case "/v1/search":
			fmt.Fprint(w, `{"data":[{"title":"T","url":"https://x","description":"C"}]}`)
		case "/extract":
			fmt.Fprint(w, `{"results":[{"title":"T","raw_content":"`+strings.Repeat("x", 9000)+`"}]}`)
		case "/v1/scrape":
			fmt.Fprint(w, `{"data":{"markdown":"M","metadata":{"title":"T"}}}`)
		case "/":
			fmt.Fprint(w, `{"data":{"title":"T","content":"J"}}`)
		case "/page":
			w.Header().Set("Content-Type", "text/html; charset=iso-8859-1")
			fmt.Fprint(w, "<html><head><title>Caf\xe9</title><script>evil()</script></head><body><nav>menu</nav><main><h2>Hi</h2><a href='/l'>link</a></main></body></html>")
		case "/hop":
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/image":
			w.Header().Set("Content-Type", "image/png")
		case "/large":
			w.Header().Set("Content-Type", "text/plain")
			for range 200 {
				fmt.Fprint(w, strings.Repeat("y", 64<<10))
			}
		default:
			http.Error(w, "quota", http.StatusTooManyRequests)
		}
	}))
	defer srv.Close()
	run := func(one agent.Tool, args string) string {
		got, err := one.Run(t.Context(), message.ToolCall{ID: "c", Name: one.Name, Args: json.RawMessage(args)})
		require.NoError(t, err)
		return got.(string)
	}
	require.JSONEq(t, `[{"title":"T","url":"https://x","snippet":"C"}]`, run(tool.WebSearch(tool.Web{Provider: "tavily", Key: "k", URL: srv.URL, Results: 1}), `{"query":"q"}`))
	require.JSONEq(t, `[{"title":"T","url":"https://x","snippet":"C"}]`, run(tool.WebSearch(tool.Web{Provider: "firecrawl", Key: "k", URL: srv.URL}), `{"query":"q"}`))
	require.Contains(t, asked[0], "POST /search Bearer k")
	got := run(tool.WebFetch(tool.Web{Provider: "tavily", Key: "k", URL: srv.URL}), `{"url":"https://example.com"}`)
	require.True(t, strings.HasPrefix(got, "# T\n\nxxx"))
	require.Len(t, got, 4096)
	require.Equal(t, "# T\n\nM", run(tool.WebFetch(tool.Web{Provider: "firecrawl", URL: srv.URL}), `{"url":"https://example.com"}`))
	require.Equal(t, "# T\n\nJ", run(tool.WebFetch(tool.Web{Provider: "jina", URL: srv.URL}), `{"url":"https://example.com"}`))
	require.Contains(t, run(tool.WebSearch(tool.Web{Provider: "tavily", URL: srv.URL + "/nowhere"}), `{"query":"q"}`), "Error: Search failed: tavily answers 429")

	require.JSONEq(t, `{"query":"q","total_results":2,"results":[{"title":"T","image_url":"https://x/a.png","thumbnail_url":""},{"title":"","image_url":"https://y/t","thumbnail_url":"https://y/t"}],
		"usage_hint":"image_url is the address of an image; fetch it before you use it."}`, run(tool.ImageSearch(tool.Web{Provider: "serper", Key: "k", URL: srv.URL}), `{"query":" q ","max_results":null}`))
	require.JSONEq(t, `{"error":"serper answers 429: quota\n","query":"q"}`, run(tool.ImageSearch(tool.Web{Provider: "serper", URL: srv.URL + "/nowhere"}), `{"query":"q"}`))

	here := tool.WebFetch(tool.Web{Rules: address.Rules{AllowLoopback: true}})
	page := run(here, `{"url":"`+srv.URL+`/page"}`)
	require.Equal(t, "# Café\n\n## Hi\n\n[link]("+srv.URL+"/l)", page)
	require.Len(t, run(here, `{"url":"`+srv.URL+`/large"}`), 4096)
	for path, want := range map[string]string{"/hop": "not allowed", "/loop": "too many redirects", "/image": "it is no text", "/none": "429"} {
		require.Contains(t, run(here, `{"url":"`+srv.URL+path+`"}`), want, path)
	}
	strict := tool.WebFetch(tool.Web{Rules: address.Rules{RefusePrivate: true}})
	for _, u := range []string{srv.URL + "/page", "http://localhost:1/", "http://10.0.0.1/", "http://[::ffff:127.0.0.1]:80/", "http://169.254.169.254/"} {
		require.Contains(t, run(strict, `{"url":"`+u+`"}`), "not allowed", u)
	}
	for _, u := range []string{"file:///etc/passwd", "gopher://x", "nowhere", "", "http://"} {
		require.Contains(t, run(here, `{"url":"`+u+`"}`), "Error: Not an address", u)
	}
}
