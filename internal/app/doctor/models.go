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
	"strings"
	"time"

	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
	"understudy/graph/message"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
)

// modelTime is how long a model may take to answer, whatever its timeout is.
const modelTime = 2 * time.Minute

// errLimit is the cause when modelTime is over. Timeouts of the model, and of connections, have other errors.
var errLimit = errors.New("no answer within doctor's own limit")

// red finds the word in an answer: "rendered" is no color.
var red = regexp.MustCompile(`(?i)\bred\b`)

// models calls each model of the declared agents once.
func (d *doctor) models(ctx context.Context, cfg *config.Config) {
	for _, m := range graphs.Models(cfg, slog.New(slog.DiscardHandler)) {
		if strings.HasPrefix(m.Name, "scripted:") {
			d.say("model", Fine, m.Name+" needs no provider", "")
			continue
		}
		d.model(ctx, m)
	}
}

const colorTool = "report_color"

// model asks for the color of an image, or for a color, with a tool to report it where the agent has tools.
func (d *doctor) model(ctx context.Context, m graphs.Model) {
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
	began := time.Now()
	said, err := model.Ask(ctx, []message.Message{question}, nil)
	if err != nil {
		d.say("model", Problem, fmt.Sprintf("%s does not answer: %v", m.Name, err), suggestion(err, m.Place))
		return
	}
	text := fmt.Sprintf("%s answers in %.1f s", m.Name, time.Since(began).Seconds())
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
	if m.Tools {
		note("calls a tool", len(said.ToolCalls) > 0 && said.ToolCalls[0].Name == colorTool)
	}
	if m.Image {
		note("reads an image", red.MatchString(answer))
	}
	note("reports usage", said.Usage != nil)
	if len(works) > 0 {
		text += ": " + strings.Join(works, ", ")
	}
	if len(fails) > 0 {
		d.say("model", Warning, text+"; not seen: "+strings.Join(fails, ", "), "", short(answer))
		return
	}
	d.say("model", Fine, text, "")
}

// suggestion returns what mostly helps against an error of a model.
func suggestion(err error, place string) string {
	var said *llm.Error
	switch {
	case errors.As(err, &said) && (said.Status == 401 || said.Status == 403):
		return "check api_key of " + place
	case errors.As(err, &said) && said.Status == 404:
		return "check name and base_url of " + place
	case errors.Is(err, errLimit):
		return "check that the server has capacity; timeout of " + place + " does not change this limit"
	case errors.Is(err, llm.ErrIdle):
		return "check that the server has capacity, or raise idle_timeout of " + place
	case errors.Is(err, llm.ErrSlow):
		return "check that the server has capacity, or raise timeout of " + place
	case errors.As(err, &said):
		return "check the settings of " + place
	}
	return "check base_url of " + place + ", and the network"
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
