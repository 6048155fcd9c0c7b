package lead

import (
	"context"
	"hash/maphash"
	"path"
	"slices"
	"sync"

	"github.com/tidwall/gjson"

	"understudy/deerflow/sandbox"
	"understudy/deerflow/tool"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/internal/jsonobj"
)

// knownKey is the member of additional_kwargs of a result by which it says what the model knows of a file: its path and version.
const knownKey = "known_file"

// readBeforeWrite refuses to replace files whose content the model does not know: it has not read them in this conversation, its summary took the place of what it read,
// or they have changed since. What it wrote itself it knows. Texts can be added to any file, and replaced in those that it once read: the old text is checked.
func readBeforeWrite(open func(ctx context.Context) (tool.Sandbox, error)) agent.Middleware {
	return agent.Middleware{
		Name: "ReadBeforeWriteMiddleware",
		WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
			if !slices.Contains([]string{"read_file", "write_file", "str_replace"}, r.Call.Name) || r.Tool == nil || r.Tool.Remote {
				return next(ctx, r)
			}
			box, err := open(ctx)
			if err != nil {
				return agent.ToolResult{}, err
			}
			defer box.Close()
			f := fileCall{ToolRequest: r, box: box, path: path.Clean(gjson.GetBytes(r.Call.Args, "path").String())}
			if r.Call.Name == "read_file" {
				version, err := box.Version(f.path, false) // before it is read: if it changes in between, it is read again
				out, failed := next(ctx, r)
				if err != nil || failed != nil {
					return out, failed
				}
				return f.noted(out, version), nil
			}
			turn := f.turn() // two calls of one answer must not both find the version that they know
			turn.Lock()
			defer turn.Unlock()
			return f.write(ctx, next)
		},
	}
}

// fileCall is a call that reads or writes a file.
type fileCall struct {
	agent.ToolRequest
	box  tool.Sandbox
	path string // clean
}

var (
	writing  [64]sync.Mutex
	turnSeed = maphash.MakeSeed()
)

// turn orders the writes of a file.
func (a fileCall) turn() *sync.Mutex {
	return &writing[maphash.String(turnSeed, a.box.ID()+"\x00"+a.path)%uint64(len(writing))]
}

func (a fileCall) write(ctx context.Context, next agent.ToolHandler) (agent.ToolResult, error) {
	args := gjson.ParseBytes(a.Call.Args)
	replaces := a.Call.Name == "write_file" && !args.Get("append").Bool()
	is, err := a.box.Version(a.path, true)
	exists := err == nil // of anything else, the tool says what is wrong
	known := a.known()
	if refused := ""; exists {
		switch {
		case known == "" && (replaces || a.Call.Name == "str_replace"):
			refused = "Error: " + a.path + " exists, and you have not read it. Read it with read_file before you change it."
		case known != is && replaces:
			refused = "Error: " + a.path + " has changed since you read it. Read it again with read_file before you replace it."
		}
		if refused != "" {
			m := message.Tool(refused, a.Call.ID).WithName(a.Call.Name)
			m.Status = message.StatusError
			return agent.ToolResult{Message: &m}, nil
		}
	}
	out, err := next(ctx, a.ToolRequest)
	if err != nil || out.Message == nil || out.Message.Text() != "OK" {
		return out, err
	}
	switch {
	case replaces, !exists:
		return a.noted(out, sandbox.VersionOf(args.Get("content").String())), nil
	case known == is:
		if is, err = a.box.Version(a.path, true); err == nil {
			return a.noted(out, is), nil
		}
	}
	return out, nil
}

// known returns the version of the file that the model knows; "": none.
func (a fileCall) known() string {
	for _, m := range slices.Backward(agent.Messages(a.State)) {
		if m.Type != message.TypeTool || len(m.AdditionalKwargs) <= len(`{}`) {
			continue
		}
		if v := gjson.GetBytes(m.AdditionalKwargs, knownKey); v.Get("path").String() == a.path {
			return v.Get("version").String()
		}
	}
	return ""
}

// noted returns a result with what the model now knows.
func (a fileCall) noted(out agent.ToolResult, version string) agent.ToolResult {
	if out.Message == nil || out.Message.Status == message.StatusError {
		return out
	}
	known := &jsonobj.Object{}
	known.SetText("path", a.path)
	known.SetText("version", version)
	m := *out.Message
	extra := jsonobj.Of(m.AdditionalKwargs)
	extra.Set(knownKey, known.JSON())
	m.AdditionalKwargs = extra.JSON()
	out.Message = &m
	return out
}
