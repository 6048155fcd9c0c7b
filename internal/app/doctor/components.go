package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"understudy/internal/app/graphs"
	"understudy/internal/components"
	"understudy/internal/config"
)

// components bundles those of each graph, as the server does.
func (d *doctor) components(ctx context.Context, cfg *config.Config) {
	if cfg.HTTP.Disable.UI {
		return
	}
	project := graphs.ComponentProject(cfg)
	for _, source := range project.Sources {
		done := d.slow("bundling the components of "+source.Graph, components.BuildTime)
		b, warnings, err := components.Build(ctx, project, source)
		done()
		var problems components.Problems
		switch {
		case errors.As(err, &problems):
			d.say("components", Problem, "those of "+source.Graph+" do not bundle, and are not served", "", texts(problems)...)
		case err != nil:
			d.say("components", Problem, "those of "+source.Graph+" do not bundle, and are not served: "+err.Error(), "")
		default:
			verdict := Fine
			if len(warnings) > 0 {
				verdict = Warning
			}
			d.say("components", verdict, fmt.Sprintf("those of %s are %s, %d KiB", source.Graph, strings.Join(b.Names, " and "), (b.Size()+1023)>>10), "", texts(warnings)...)
		}
	}
}

func texts(problems []components.Problem) []string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = p.String()
	}
	return out
}
