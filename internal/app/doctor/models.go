package doctor

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tmc/langchaingo/llms"
	"golang.org/x/sync/errgroup"

	"understudy/graph/agent/llm"
	"understudy/graph/message"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
	"understudy/internal/loop"
	"understudy/internal/names"
)

// modelTime is how long a model may take to answer, whatever its timeout is.
const modelTime = 2 * time.Minute

// errLimit is the cause when modelTime is over. Timeouts of the model, and of connections, have other errors.
var errLimit = errors.New("no answer within doctor's own limit")

// red finds the word in an answer: "rendered" is no color.
var red = regexp.MustCompile(`(?i)\bred\b`)

// modelsAtOnce is how many models are called at the same time.
const modelsAtOnce = 4

// models calls each model of the declared agents once.
func (d *doctor) models(ctx context.Context, cfg *config.Config) {
	all := graphs.Models(cfg, slog.New(slog.DiscardHandler))
	waiting := &unfinished{}
	defer d.stillAsking(waiting)()
	var asking errgroup.Group
	asking.SetLimit(modelsAtOnce)
	for i, m := range all {
		if strings.HasPrefix(m.Name, "scripted:") {
			d.say("model", Fine, m.Name+" needs no provider", "")
			continue
		}
		name := m.Name
		if slices.ContainsFunc(all[:i], func(o graphs.Model) bool { return o.Name == m.Name }) || slices.ContainsFunc(all[i+1:], func(o graphs.Model) bool { return o.Name == m.Name }) {
			name += " (" + strings.Join(m.Places, ", ") + ")"
		}
		if m.Source.Base != "" {
			name += ", at the address in " + m.Source.Base + ","
		}
		asking.Go(func() error {
			short := strings.TrimSuffix(name, ",")
			waiting.add(short)
			defer waiting.remove(short)
			d.model(ctx, m, name)
			return nil
		})
	}
	_ = asking.Wait() // findings are the result
}

// stillAsking reports which models have not answered, until the function that it returns is called.
func (d *doctor) stillAsking(waiting *unfinished) (done func()) {
	began := time.Now()
	return loop.Repeat(stillEvery, stillEvery, func() {
		if left := waiting.list(); len(left) > 0 {
			d.still("still asking " + names.Some(left, modelsAtOnce) + ", for " + time.Since(began).Round(time.Second).String())
		}
	})
}

const colorTool = "report_color"

// model asks for the color of an image, or for a color, with a tool to report it where the agent has tools.
func (d *doctor) model(ctx context.Context, m graphs.Model, name string) {
	limit := d.ModelTime
	if limit == 0 {
		limit = modelTime
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w of %s", errLimit, limit))
	defer cancel()
	question := message.Human("Name the color of blood in one word.")
	if m.Image {
		question.Content = message.Content{Blocks: []json.RawMessage{
			json.RawMessage(`{"type":"text","text":"Name the color of this image in one word."}`),
			json.RawMessage(`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + redImage() + `"}}`),
		}}
	}
	model := m.Model
	if m.Tools {
		tool := llms.Tool{Type: "function", Function: &llms.FunctionDefinition{
			Name: colorTool, Description: "Reports a color. Always answer by calling it.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"color":{"type":"string","description":"one English word"}},"required":["color"]}`),
		}}
		model.Options = append(model.Options[:len(model.Options):len(model.Options)], llms.WithTools([]llms.Tool{tool}))
	}
	d.doing("asking "+strings.TrimSuffix(name, ","), limit)
	began := time.Now()
	said, err := model.Ask(ctx, []message.Message{question}, nil)
	took := time.Since(began).Seconds()
	if err != nil {
		cause, next := llm.Diagnose(err)
		if errors.Is(err, errLimit) {
			next = "check that the server has capacity; timeout of " + m.Source.Place + " does not change this limit"
		}
		d.say("model", Problem, fmt.Sprintf("%s does not answer (%.1f s): %s", name, took, cause), next)
		return
	}
	text := fmt.Sprintf("%s answers in %.1f s", name, took)
	var works, fails []string
	note := func(what string, ok bool) {
		if ok {
			works = append(works, what)
		} else {
			fails = append(fails, what)
		}
	}
	answer := said.Text()
	for _, c := range said.ToolCalls {
		answer += " " + string(c.Args)
	}
	var next []string
	if m.Tools {
		calls := len(said.ToolCalls) > 0 && said.ToolCalls[0].Name == colorTool
		note("calls a tool", calls)
		if !calls {
			next = append(next, llm.ToolAdvice(m.Source))
		}
	}
	if m.Image {
		reads := red.MatchString(answer)
		note("reads an image", reads)
		if !reads {
			next = append(next, "set images of "+m.Source.Place+" to false, or choose a model that reads images")
		}
	}
	note("reports usage", said.Usage != nil)
	if len(works) > 0 {
		text += ": " + strings.Join(works, ", ")
	}
	if len(fails) > 0 {
		d.say("model", Warning, text+"; not seen: "+strings.Join(fails, ", "), strings.Join(next, "; "), short(answer))
		return
	}
	d.say("model", Fine, text, "")
}

func short(text string) string {
	if runes := []rune(text); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return text
}

// redImage returns a red square as base64 of a PNG.
func redImage() string {
	img := image.NewRGBA(image.Rect(0, 0, 32, 32))
	draw.Draw(img, img.Bounds(), image.NewUniform(color.RGBA{R: 220, A: 255}), image.Point{}, draw.Src)
	var b bytes.Buffer
	_ = png.Encode(&b, img) // a buffer takes all
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
