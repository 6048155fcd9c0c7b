package lead

import (
	"context"
	"encoding/json"
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

// knownKey is the member of additional_kwargs of a result by which it says what the model knows of a file: its path, and its version, or that it has seen a part of it.
const knownKey = "known_file"

// readBeforeWrite refuses to replace files whose content the model does not know: it has not read the whole of them in this conversation, its summary took the place of
// what it read, or they have changed since. What it wrote itself it knows. Texts can be added to any file, and replaced in those of which it once read a part: the old text
// is checked.
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
				var seen tool.Seen
				out, failed := next(tool.WithSeen(ctx, &seen), r)
				switch {
				case err != nil, failed != nil, seen == tool.SeenNothing:
					return out, failed
				case seen == tool.SeenPart:
					version = ""
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
	exists := err == nil // for other errors the tool reports the cause
	known, seen := a.known()
	if refused := ""; exists {
		switch {
		case !seen && (replaces || a.Call.Name == "str_replace"):
			refused = "Error: " + a.path + " exists, and you have not read it. Read it with read_file before you change it."
		case known == "" && replaces:
			refused = "Error: " + a.path + " exists, and you have read only a part of it. Read it whole with read_file before you replace it, or change it with str_replace."
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

// known returns the version of the file that the model knows, "" for none, and whether it has seen any of the file.
func (a fileCall) known() (version string, seen bool) {
	for _, m := range slices.Backward(agent.Messages(a.State)) {
		if m.Type != message.TypeTool || len(m.AdditionalKwargs) <= len(`{}`) {
			continue
		}
		if v := gjson.GetBytes(m.AdditionalKwargs, knownKey); v.Get("path").String() == a.path {
			seen = true
			if version = v.Get("version").String(); version != "" {
				break
			}
		}
	}
	return version, seen
}

// noted returns a result with what the model now knows: the version of the file; "": only a part of it.
func (a fileCall) noted(out agent.ToolResult, version string) agent.ToolResult {
	if out.Message == nil || out.Message.Status == message.StatusError {
		return out
	}
	known := &jsonobj.Object{}
	known.SetText("path", a.path)
	if version != "" {
		known.SetText("version", version)
	} else {
		known.Set("partial", json.RawMessage("true"))
	}
	m := *out.Message
	extra := jsonobj.Of(m.AdditionalKwargs)
	extra.Set(knownKey, known.JSON())
	m.AdditionalKwargs = extra.JSON()
	out.Message = &m
	return out
}
