package understudy_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy"
	"understudy/deerflow/client"
)

// A program chats with DeerFlow's agent, and manages what belongs to a user, with the shapes of the Gateway; other users see nothing of it.
func TestEmbeddedDeerFlow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		return at
	}
	settings := write("config.yaml", "config_version: 34\nmodels: [{name: scripted, use: 'understudy:scripted', model: script.json}]\nmemory: {enabled: true}\n"+
		"tools: [{name: write_file, group: g, use: 'deerflow.sandbox.tools:write_file_tool'}]\nskills: {path: skills}\nuploads: {max_files: 2}\n")
	write("script.json", `{"answers": [
		{"from": "human", "when": "draw", "tool_calls": [{"name": "write_file", "args": {"description": "d", "path": "/mnt/user-data/outputs/a.csv", "content": "1,2\n"}}]},
		{"from": "tool", "when": "^OK$", "tool_calls": [{"name": "present_files", "args": {"filepaths": ["/mnt/user-data/outputs/a.csv"]}}]},
		{"from": "tool", "content": "It is drawn."}, {"from": "human", "content": "Hello there."}]}`)
	write("skills/public/demo/SKILL.md", "---\nname: demo\ndescription: Shows.\nlicense: MIT\n---\n\nDo.\n")
	none, err := understudy.New(understudy.Config{Addr: "127.0.0.1:0", Storage: understudy.Storage{Dir: ":memory:"}})
	require.NoError(t, err)
	_, err = none.DeerFlow("ann")
	require.ErrorContains(t, err, "HTTP.DeerFlow")
	require.NoError(t, none.Close())

	srv, err := understudy.New(understudy.Config{Addr: "127.0.0.1:0", Storage: understudy.Storage{Dir: t.TempDir()}, HTTP: understudy.HTTP{DeerFlow: settings}})
	require.NoError(t, err)
	serving(t, srv, func(func(method, path, body string) (int, string)) {
		ctx := t.Context()
		ann, err := srv.DeerFlow("ann")
		require.NoError(t, err)
		ben, err := srv.DeerFlow("ben")
		require.NoError(t, err)

		said, err := ann.Chat(ctx, client.Turn{Thread: "talk", Text: "hi"})
		require.NoError(t, err)
		require.Equal(t, "Hello there.", said)
		var kinds []string
		var deltas string
		var last, end gjson.Result
		for e, err := range ann.Stream(ctx, client.Turn{Thread: "talk", Text: "draw it", Context: map[string]any{"is_plan_mode": false}}) {
			require.NoError(t, err)
			if len(kinds) == 0 || kinds[len(kinds)-1] != e.Type {
				kinds = append(kinds, e.Type)
			}
			switch data := gjson.ParseBytes(e.Data); e.Type {
			case "messages-tuple":
				if data.Get("type").Str == "AIMessageChunk" {
					deltas += data.Get("content").String()
				}
			case "values":
				last = data
			case "end":
				end = data
			}
		}
		require.Equal(t, "values", kinds[0])
		require.Equal(t, "end", kinds[len(kinds)-1])
		require.Equal(t, "It is drawn.", deltas)
		require.Equal(t, "It is drawn.", last.Get("messages|@reverse|0.content").String())
		require.Equal(t, "talk", end.Get("thread_id").Str)
		require.NotEmpty(t, end.Get("run_id").Str)
		require.True(t, end.Get("usage.total_tokens").Exists())
		content, kind, err := ann.Artifact(ctx, "talk", last.Get("artifacts.0").Str)
		require.NoError(t, err)
		require.Equal(t, "1,2\n", string(content))
		require.Contains(t, kind, "text/csv")

		list, err := ann.Threads(ctx, 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "hi", gjson.GetBytes(list[0].Values, "title").Str)
		thread, err := ann.Thread(ctx, "talk")
		require.NoError(t, err)
		require.Equal(t, []any{"talk", "idle", int64(8)}, []any{thread.ID, thread.Status, gjson.GetBytes(thread.Values, "messages.#").Int()})
		var refusal *client.Error
		_, err = ben.Thread(ctx, "talk")
		require.True(t, errors.As(err, &refusal) && refusal.Status == 404, err)
		_, err = ben.Chat(ctx, client.Turn{Thread: "talk", Text: "whose is it?"})
		require.True(t, errors.As(err, &refusal) && refusal.Status == 404, err)
		require.Equal(t, "Thread talk not found", refusal.Detail)

		models, err := ann.Models(ctx)
		require.NoError(t, err)
		require.Equal(t, "scripted", models[0].Name)
		_, err = ann.Model(ctx, "none")
		require.True(t, errors.As(err, &refusal) && refusal.Status == 404, err)
		skills, err := ann.Skills(ctx)
		require.NoError(t, err)
		require.Equal(t, []client.Skill{{Name: "demo", Description: "Shows.", License: "MIT", Category: "public", Enabled: true}}, skills)
		skill, err := ann.EnableSkill(ctx, "demo", false)
		require.NoError(t, err)
		require.False(t, skill.Enabled)

		memory, err := ann.ImportMemory(ctx, json.RawMessage(`{"facts": [{"id": "f1", "content": "likes pears"}]}`))
		require.NoError(t, err)
		require.Equal(t, "likes pears", gjson.GetBytes(memory, "facts.0.content").Str)
		memory, err = ben.Memory(ctx)
		require.NoError(t, err)
		require.Empty(t, gjson.GetBytes(memory, "facts").Array())
		_, err = ann.ClearMemory(ctx)
		require.NoError(t, err)

		require.NoError(t, ann.SetServers(ctx, map[string]json.RawMessage{"s": json.RawMessage(`{"enabled": false, "command": "npx", "args": ["x"], "env": {"KEY": "secret"}}`)}))
		servers, err := ben.Servers(ctx) // they are everybody's
		require.NoError(t, err)
		require.Equal(t, "***", gjson.GetBytes(servers["s"], "env.KEY").Str)
		require.NoError(t, ann.ResetAgent(ctx))

		file := write("notes.txt", "text")
		_, err = ann.Upload(ctx, "talk", file, dir)
		require.ErrorContains(t, err, "it is no file")
		files, err := ann.Uploads(ctx, "talk")
		require.NoError(t, err)
		require.Empty(t, files)
		_, err = ann.Upload(ctx, "talk", file, file, file)
		require.True(t, errors.As(err, &refusal) && refusal.Status == 413, err)
		files, err = ann.Upload(ctx, "talk", file)
		require.NoError(t, err)
		require.Equal(t, []any{"notes.txt", int64(4), "/mnt/user-data/uploads/notes.txt"}, []any{files[0].Name, files[0].Size, files[0].Path})
		_, err = ann.Chat(ctx, client.Turn{Thread: "talk", Text: "read it", Files: files})
		require.NoError(t, err)
		require.NoError(t, ann.DeleteUpload(ctx, "talk", "notes.txt"))
		odd := write(`odd\name.skill`, "no archive")
		_, err = ann.Upload(ctx, "talk", file, odd)
		require.ErrorContains(t, err, "1 of 2 files were taken")
		_, err = ann.InstallSkill(ctx, odd)
		require.ErrorContains(t, err, "0 of 1 files were taken")
		require.NoError(t, ann.DeleteThread(ctx, "talk"))
	})
}
