package components

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/evanw/esbuild/pkg/api"
)

//go:embed tailwind.mjs
var tailwindProgram string

// usesTailwind finds style sheets that only Tailwind understands.
var usesTailwind = regexp.MustCompile(`@import\s+(?:url\()?["']tailwindcss|@(?:tailwind|apply|theme|utility|custom-variant|source|plugin|config|reference)\b`)

const (
	tailwindTime = 30 * time.Second
	maxStyles    = maxBytes
)

// tailwind gives style sheets that need it to the project's own Tailwind, which Node.js runs: its compiler is JavaScript. It keeps the utilities that
// the bundle's files name. Other style sheets pass.
func tailwind(ctx context.Context, p Project, opts api.BuildOptions) api.Plugin {
	files := sync.OnceValues(func() ([]string, error) { return inputs(ctx, p, opts) })
	return api.Plugin{Name: "tailwind", Setup: func(b api.PluginBuild) {
		b.OnLoad(api.OnLoadOptions{Filter: `\.css$`, Namespace: "file"}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
			source, err := os.ReadFile(args.Path)
			if err != nil {
				return api.OnLoadResult{}, err
			}
			at := usesTailwind.FindIndex(source)
			if at == nil {
				return api.OnLoadResult{}, nil
			}
			list, err := files()
			if err != nil {
				return api.OnLoadResult{}, err
			}
			css, err := compileStyles(ctx, request{CSS: string(source), From: args.Path, Base: filepath.Dir(args.Path), Files: list})
			if err != nil {
				line := 1 + bytes.Count(source[:at[0]], []byte("\n"))
				return api.OnLoadResult{Errors: []api.Message{{Text: err.Error(), Location: &api.Location{File: short(p.Dir, args.Path), Line: line}}}}, nil
			}
			dir := filepath.Dir(args.Path)
			return api.OnLoadResult{Contents: &css, Loader: api.LoaderCSS, ResolveDir: dir}, nil
		})
	}}
}

// request is what the program in tailwind.mjs reads.
type request struct {
	CSS   string   `json:"css"`
	From  string   `json:"from"` // the style sheet's path
	Base  string   `json:"base"` // its folder
	Files []string `json:"files"`
}

// compileStyles runs Node.js. It gets no variables of this server, whose credentials are among them.
func compileStyles(ctx context.Context, r request) (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", errors.New("this style sheet uses Tailwind, whose compiler needs Node.js: install Node.js 18 or later, or compile the style sheet before")
	}
	input, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, tailwindTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--input-type=module", "--eval", tailwindProgram)
	cmd.Dir = r.Base
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SystemRoot", "USERPROFILE"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Stdin = bytes.NewReader(input)
	cmd.WaitDelay = time.Second
	out, complaints := &bounded{most: maxStyles}, &bounded{most: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, complaints
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("Tailwind did not end within %s", tailwindTime) //nolint:staticcheck // a name
	case err != nil:
		text := strings.TrimSpace(complaints.String())
		if text == "" {
			text = err.Error()
		}
		return "", errors.New(text)
	case out.over:
		return "", fmt.Errorf("the style sheet has more than %d MiB", maxStyles>>20)
	}
	return out.String(), nil
}

// bounded keeps the first bytes that are written.
type bounded struct {
	bytes.Buffer
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if rest := b.most - b.Len(); len(p) > rest {
		b.over = true
		b.Buffer.Write(p[:rest])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}
