package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"understudy/deerflow/sandbox"
	"understudy/graph/agent"
	"understudy/graph/pregel"
)

const (
	refusedText = "Command blocked: security violation detected. Please use a safer alternative approach."
	warningText = "\n\n⚠️ Warning: `%s` is a medium-risk command that may modify the runtime environment."
)

// Bash returns the tool bash. Offer it only where commands may run.
func Bash(o Options) agent.Tool {
	type args struct {
		Command string `json:"command"`
	}
	paths := "Name files by absolute paths in commands. In scripts that you write to files name them relative to that folder, " +
		"such as ../uploads/table.csv and ../outputs/chart.png: programs may not know the absolute ones."
	if o.Mounted {
		paths = "Name files by absolute paths, such as /mnt/user-data/uploads/table.csv, in commands and in scripts."
	}
	return agent.Tool{
		Name: "bash",
		Description: "Runs a command of bash in /mnt/user-data/workspace. " + paths + " Start programs that do not end by themselves in the background, " +
			"with their output in a file, such as `program > /mnt/user-data/workspace/program.log 2>&1 &`. They end with the conversation's turn.",
		Schema: schema(description, arg{"command", text, "The command.", false}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			v := sandbox.Audit(a.Command)
			log := pregel.LogOf(ctx).With("sandbox", s.ID(), "verdict", v.Risk.String())
			if v.Risk == sandbox.High {
				log.Warn("command of an agent refused", "reason", v.Reason)
				return refusedText, nil
			}
			out, err := s.Run(ctx, sandbox.Command{Text: a.Command, Timeout: o.Timeout, Characters: o.BashLimit, Env: o.Env})
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case errors.Is(err, fs.ErrPermission):
				log.Info("command of an agent refused", "reason", err)
				return "Error: " + err.Error(), nil
			case err != nil:
				log.Warn("command of an agent failed", "error", err)
				return nil, errors.New("the command could not be started; the server's log has the reason")
			}
			log.Info("command of an agent ran", "reason", v.Reason)
			if v.Risk == sandbox.Medium {
				out += fmt.Sprintf(warningText, a.Command)
			}
			return out, nil
		}),
	}
}
