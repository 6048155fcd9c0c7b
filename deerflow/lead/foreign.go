package lead

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"understudy/deerflow/acp"
	"understudy/deerflow/files"
	"understudy/deerflow/sandbox"
	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/pregel"
)

// foreignPool is how many ACP agents run at once in this process; calls beyond that wait. Each is a program with all rights of the server, and often takes hundreds of
// megabytes.
const foreignPool = 4

// invokeACP is the tool by which the agent asks agents that are programs of their own. They work in the folder acp-workspace of the run's thread.
func (g *Graph) invokeACP(agents map[string]settings.ACPAgent) agent.Tool {
	names := slices.Sorted(maps.Keys(agents))
	var b strings.Builder
	b.WriteString("Gives a task to another agent, a program of its own, and returns its answer. Agents:")
	for _, name := range names {
		b.WriteString("\n- " + name + ": " + agents[name].Description)
	}
	b.WriteString("\nIt works in a folder of its own and knows nothing of this conversation, nor of /mnt/user-data: the prompt must have all that it needs. Its files are in /mnt/acp-workspace afterwards, where you can only read.")
	type args struct {
		Agent  string `json:"agent" jsonschema:"Name of the agent."`
		Prompt string `json:"prompt" jsonschema:"The whole task."`
	}
	return agent.MustTool("invoke_acp_agent", b.String(), func(ctx context.Context, a args) (any, error) {
		c, ok := agents[a.Agent]
		if !ok {
			return fmt.Sprintf("Error: Unknown agent '%s'. Available: %s", a.Agent, strings.Join(names, ", ")), nil
		}
		return g.askACP(ctx, a.Agent, c, a.Prompt)
	})
}

func (g *Graph) askACP(ctx context.Context, name string, c settings.ACPAgent, prompt string) (any, error) {
	info, _ := pregel.Info(ctx)
	if !files.IsThread(string(info.Thread)) {
		return nil, errors.New("this thread cannot have files: its ID has characters that names of folders must not have")
	}
	dir := filepath.Join(g.o.Tools.Dir(userOf(ctx), string(info.Thread)), "acp-workspace")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of ACP agents: %w", err)
	}
	select {
	case g.foreign <- struct{}{}:
	default:
		pregel.LogOf(ctx).Info("acp agent waits: too many are running", "acp_agent", name, "running", foreignPool)
		select {
		case g.foreign <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer func() { <-g.foreign }()
	var servers []acp.Server
	if g.o.ForeignServers != nil {
		var err error
		if servers, err = g.o.ForeignServers(); err != nil {
			pregel.LogOf(ctx).Warn("MCP servers cannot be listed; an ACP agent works without them", "acp_agent", name, "error", err)
		}
	}
	mark, server := g.o.Tools.Sandbox.Mark()
	g.o.Tools.Sandbox.Tidy(sandboxID(ctx)) // what is left of the try of a server that died
	c.Env = maps.Clone(c.Env)
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	c.Env[mark] = server
	one := acp.Agent{Name: name, Command: c.Command, Args: c.Args, Env: c.Env, Model: c.Model, Approve: c.Approve, Timeout: seconds(c.Timeout)}
	text, err := one.Prompt(ctx, dir, servers, prompt, pregel.LogOf(ctx))
	var late *acp.TimeoutError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &late):
		return fmt.Sprintf("Error: ACP agent '%s' timed out after %.0f seconds without responding, and was ended. Give it a smaller task, or increase acp_agents.%s.timeout_seconds.", name, late.After.Seconds(), name), nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("Error invoking ACP agent '%s': the command '%s' is not installed on the server.", name, c.Command), nil
	case err != nil:
		pregel.LogOf(ctx).Warn("an ACP agent failed", "acp_agent", name, "error", err)
		return fmt.Sprintf("Error invoking ACP agent '%s': %s", name, sandbox.Head(sandbox.Clean(maskPaths(err.Error(), dir)), 1000)), nil
	case strings.TrimSpace(text) == "":
		return "(no response)", nil
	}
	return sandbox.Clean(text), nil
}

// absolute finds what may be an absolute path, and not the path of a URL.
var absolute = regexp.MustCompile(`(^|[\s"'(\[=:,])(/[^\s"'()\[\]:,;/]+)(/[^\s"'()\[\]:,;]*)?`)

// maskPaths replaces paths of this machine in an error of an agent: the folder that it works in by the name which the model knows, others by a word. The model needs
// none of them, and the transcript is read by users.
func maskPaths(text, dir string) string {
	const workspace = "/mnt/acp-workspace"
	text = strings.ReplaceAll(text, dir, workspace)
	return absolute.ReplaceAllStringFunc(text, func(found string) string {
		m := absolute.FindStringSubmatch(found)
		if path := m[2] + m[3]; path == workspace || strings.HasPrefix(path, workspace+"/") {
			return found
		}
		if _, err := os.Lstat(m[2]); err != nil { // such as /v1/messages
			return found
		}
		return m[1] + "[path]"
	})
}
