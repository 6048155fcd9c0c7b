package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"understudy/deerflow/sandbox"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// answer returns an update of the state with the result of the running call.
func answer(ctx context.Context, result string, update pregel.Values) *pregel.Command {
	if update == nil {
		update = pregel.Values{}
	}
	call := agent.CallOf(ctx)
	update["messages"] = []message.Message{message.Tool(result, call.ID).WithName(call.Name)}
	return &pregel.Command{Update: update}
}

// PresentFiles returns the tool present_files: files in outputs become artifacts.
func PresentFiles(o Options) agent.Tool {
	type args struct {
		Paths []string `json:"filepaths"`
	}
	return agent.Tool{
		Name:        "present_files",
		Description: "Shows files to the user, who can read and download them. Call it when files are finished and in /mnt/user-data/outputs; not for files that only you need.",
		Schema:      schema(arg{"filepaths", `"type":"array","items":{"type":"string"}`, "Absolute paths of files in /mnt/user-data/outputs.", false}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			list := make([]string, 0, len(a.Paths))
			for _, p := range a.Paths {
				clean := path.Clean(p)
				if virtual, ok := s.Virtual(p); ok { // models may have seen it elsewhere
					clean = virtual
				}
				if !strings.HasPrefix(clean, sandbox.Outputs+"/") {
					return "Error: Only files in " + sandbox.Outputs + " can be presented: " + p, nil
				}
				if !s.Exists(clean) {
					return "Error: File not found: " + p, nil
				}
				list = append(list, clean)
			}
			return answer(ctx, "Successfully presented files", pregel.Values{"artifacts": list}), nil
		}),
	}
}

// Image is a viewed image in the state.
type Image struct {
	Base64 string `json:"base64"`
	Type   string `json:"mime_type"`
	Size   int    `json:"size"`
	Sum    string `json:"sha256"`
}

// images are the formats of view_image by suffix; the order is that of error texts.
var (
	images   = map[string]string{".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp", ".gif": "image/gif"}
	suffixes = ".jpg, .jpeg, .png, .webp, .gif"
)

// imageType returns the media type that the contents of an image have; "" for others.
func imageType(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return "image/webp"
	case bytes.HasPrefix(b, []byte("GIF87a")), bytes.HasPrefix(b, []byte("GIF89a")):
		return "image/gif"
	}
	return ""
}

// ViewImage returns the tool view_image, for models that see: the image is put into the state.
func ViewImage(o Options) agent.Tool {
	type args struct {
		Path string `json:"image_path"`
	}
	return agent.Tool{
		Name: "view_image", Description: "Shows you an image: jpg, jpeg, png, webp or gif.",
		Schema: schema(arg{"image_path", text, "Absolute path of the image below /mnt/user-data.", false}),
		Run: run(o, func(ctx context.Context, s Sandbox, a args) (any, error) {
			suffix := strings.ToLower(path.Ext(a.Path))
			want := images[suffix]
			switch clean := path.Clean(a.Path); {
			case !strings.HasPrefix(clean, sandbox.Workspace+"/") && !strings.HasPrefix(clean, sandbox.Uploads+"/") && !strings.HasPrefix(clean, sandbox.Outputs+"/"):
				return fmt.Sprintf("Error: Only image paths under %s, %s, %s are allowed", sandbox.Workspace, sandbox.Uploads, sandbox.Outputs), nil
			case want == "":
				return fmt.Sprintf("Error: Unsupported image format: %s. Supported formats: %s", suffix, suffixes), nil
			}
			content, err := s.Bytes(a.Path, maxImage)
			var large *sandbox.TooLarge
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return "Error: Image file not found: " + a.Path, nil
			case errors.As(err, &large):
				return fmt.Sprintf("Error: Image file is too large: %d bytes. Maximum supported size is %d bytes", large.Size, large.Limit), nil
			case errors.Is(err, fs.ErrPermission):
				return "Error: " + err.Error(), nil
			case err != nil:
				return explain(ctx, err, "Image file", a.Path, "")
			}
			switch is := imageType(content); is {
			case want:
			case "":
				return "Error: File contents do not match a supported image format", nil
			default:
				return fmt.Sprintf("Error: Image contents are %s, but file extension indicates %s", is, want), nil
			}
			sum := sha256.Sum256(content)
			image := Image{Base64: base64.StdEncoding.EncodeToString(content), Type: want, Size: len(content), Sum: hex.EncodeToString(sum[:])}
			return answer(ctx, "Successfully read image", pregel.Values{"viewed_images": map[string]Image{a.Path: image}}), nil
		}),
	}
}
