package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
	"understudy/internal/logtest"
)

// A check finds what keeps an installation from working, all at once, and changes nothing.
func TestCheckDeerFlow(t *testing.T) {
	t.Parallel()
	const script = "models: [{name: s, use: 'understudy:scripted', model: script.json}]\n"
	for name, c := range map[string]struct {
		config, extensions string
		env                map[string]string
		want, not          []string
	}{
		"sound": {config: script + "config_version: 34\n", want: []string{"the agent can be built", "msg=skills"}, not: []string{"level=WARN msg=configuration", "level=ERROR"}},
		"models": {
			config: "models: [{name: gpt, use: 'langchain_openai:ChatOpenAI', model: gpt-4o}, {name: lost, use: 'understudy:scripted', model: none.json}, {name: odd, use: 'my:Model', model: x}]\nguardrails: {enabled: true, provider: {use: 'my:Guard'}}\n",
			want:   []string{"model=gpt .*set OPENAI_API_KEY", "model=lost .*none.json", `model=odd .*is not known here`, "the agent cannot be built", "my:Guard"},
		},
		"with the key": {
			config: "models: [{name: gpt, use: 'langchain_openai:ChatOpenAI', model: gpt-4o}]\n", env: map[string]string{"OPENAI_API_KEY": "k"},
			want: []string{"the agent can be built"}, not: []string{"level=ERROR"},
		},
		"sign-ins": {
			config: "models: [{name: codex, use: 'deerflow.models.openai_codex_provider:CodexChatModel', model: gpt-5}, {name: claude, use: 'deerflow.models.claude_provider:ClaudeChatModel', model: claude-x}]\n",
			want:   []string{"level=ERROR .*model=codex .*there is no sign-in with Codex; use langchain_openai:ChatOpenAI", "level=ERROR .*model=claude .*set ANTHROPIC_API_KEY .*no sign-in with Claude Code"},
		},
		"middleware": {
			config:     script + "extensions: {middlewares: ['my.guards:Redact', {class: 'my.guards:Count', kwargs: {n: 1}}]}\n",
			extensions: `{"middlewares": ["my.more:One", {"use": "my.more:Two"}, 5, {}]}`,
			want:       []string{`level=WARN msg="middleware in Python does not work in this agent.*langgraph.json.*my.guards:Redact my.guards:Count my.more:One my.more:Two\]`, "the agent can be built"},
			not:        []string{"no effect here.*extensions"},
		},
		"none":     {config: "models: []\n", want: []string{"no model is configured"}},
		"broken":   {config: "models: [", want: []string{"level=ERROR msg=\"the settings cannot be read\""}},
		"variable": {config: "models: [{name: a, use: b, model: c, api_key: $NONE}]\n", want: []string{"the environment variable NONE is not set; set it in the environment, or in the file .env"}},
		"roles":    {config: script + "authorization: {enabled: true}\n", want: []string{"enforces no roles"}},
		"skills":   {config: script + "skills: {path: nowhere}\n", want: []string{"the folder of skills does not exist"}},
		"sandbox":  {config: script + "sandbox: {use: 'their:Cloud'}\n", want: []string{`level=ERROR msg="commands of agents are refused".*their:Cloud`}},
		"tools":    {config: script + "tools: [{name: x, group: g, use: 'deerflow.community.tavily.tools:web_search_tool'}]\n", want: []string{"level=WARN .*set TAVILY_API_KEY"}},
		"servers": {
			config: script, extensions: `{"mcpServers": {"a": {"command": "surely-no-such-program"}, "b": {"type": "http", "url": "https://me:s3cret@mcp.example.com/mcp/?key=s3cret"}, "c": {"args": 5}, "d": {"command": "sh"}, "e": {"command": "sh", "env": {"PATH": "/nowhere"}}, "f": {"command": "no", "enabled": false}}}`,
			want: []string{"level=ERROR .*mcp_server=a", "level=INFO .*mcp_server=b host=https://mcp.example.com\n", "level=ERROR .*mcp_server=c", "level=INFO .*mcp_server=d", "level=ERROR .*mcp_server=e .*/nowhere"}, not: []string{"mcp_server=f", "s3cret"},
		},
		"unreadable servers": {config: script, extensions: `{`, want: []string{"level=ERROR msg=\"the configuration of MCP servers cannot be read\""}},
		"programs":           {config: script + "acp_agents: {coder: {command: surely-no-such-program, description: d}}\n", want: []string{"level=ERROR .*agent=coder"}},
		"proxies":            {config: script, env: map[string]string{"AUTH_TRUSTED_PROXIES": "nowhere"}, want: []string{"level=ERROR .*AUTH_TRUSTED_PROXIES"}},
	} {
		dir := t.TempDir()
		files := map[string]string{"config.yaml": c.config, "script.json": `{"answers":[{"content":"hi"}]}`}
		if c.extensions != "" {
			files["extensions_config.json"] = c.extensions
		}
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		cfg, _, err := config.Load(config.Source{
			Mode: config.Serve, Flags: map[string]string{"port": "0", "data": filepath.Join(dir, "data"), "deerflow": filepath.Join(dir, "config.yaml")},
			Lookup: func(name string) (string, bool) { v, ok := c.env[name]; return v, ok },
		})
		require.NoError(t, err)
		var log logtest.Buffer
		CheckDeerFlow(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
		for _, want := range c.want {
			require.Regexp(t, want, log.String(), name)
		}
		for _, not := range c.not {
			require.NotRegexp(t, not, log.String(), name)
		}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, len(files), "%s: something was written", name)
	}
}
