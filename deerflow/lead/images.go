package lead

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"understudy/deerflow/tool"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

const viewedKey = "viewed_images"

// images shows the model the images that it asked for with view_image: in the request that follows the results, once. Then they are removed from the state, where each
// would be kept with each checkpoint.
func images() agent.Middleware {
	return agent.Middleware{
		Name: "ViewImageMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			seen, _, err := pregel.Get[map[string]tool.Image](r.State, viewedKey)
			if err != nil {
				return agent.ModelResponse{}, fmt.Errorf("read viewed images: %w", err)
			}
			if content := viewed(r.Messages, seen); content.Blocks != nil {
				m := message.Message{Type: message.TypeHuman, Content: content, AdditionalKwargs: json.RawMessage(`{"hide_from_ui":true}`)}
				r.Messages = append(slices.Clip(r.Messages), m)
			}
			out, err := next(ctx, r)
			if err == nil && len(seen) > 0 {
				out.Updates = append(slices.Clip(out.Updates), &pregel.Command{Update: pregel.Values{viewedKey: map[string]any{}}})
			}
			return out, err
		},
	}
}

// viewed returns the images that the last answer asked for, when all of its calls have results and nothing else was said since.
func viewed(list []message.Message, seen map[string]tool.Image) (c message.Content) {
	results := map[string]bool{}
	at := len(list) - 1
	for ; at >= 0 && list[at].Type == message.TypeTool; at-- {
		results[list[at].ToolCallID] = true
	}
	if at < 0 || len(seen) == 0 {
		return c
	}
	text := func(s string) {
		block := &jsonobj.Object{}
		block.SetText("type", "text")
		block.SetText("text", s)
		c.Blocks = append(c.Blocks, block.JSON())
	}
	shown := map[string]bool{}
	for _, call := range list[at].ToolCalls {
		if !results[call.ID] {
			return message.Content{}
		}
		path := gjson.GetBytes(call.Args, "image_path").String()
		image, ok := seen[path]
		if call.Name != "view_image" || !ok || shown[path] {
			continue
		}
		if shown[path] = true; c.Blocks == nil {
			text("Here are the images you've viewed:")
		}
		text("- " + path + " (" + image.Type + ")")
		url := &jsonobj.Object{}
		url.SetText("url", "data:"+image.Type+";base64,"+image.Base64)
		block := &jsonobj.Object{}
		block.SetText("type", "image_url")
		block.Set("image_url", url.JSON())
		c.Blocks = append(c.Blocks, block.JSON())
	}
	return c
}
