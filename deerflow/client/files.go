package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Upload copies files into a thread, which is made if there is none. A path that is no file is refused before anything is copied.
func (c *Client) Upload(ctx context.Context, thread string, paths ...string) ([]File, error) {
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("upload %s: it is no file", p)
		}
	}
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	var filling sync.WaitGroup
	filling.Go(func() { w.CloseWithError(errors.Join(fill(form, paths), form.Close())) })
	defer filling.Wait()
	defer r.Close() // ends it
	answer, err := c.send(ctx, http.MethodPost, "/api/threads/"+url.PathEscape(thread)+"/uploads", form.FormDataContentType(), r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var out struct {
		Files   []File   `json:"files"`
		Skipped []string `json:"skipped_files"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return nil, err
	}
	if len(out.Skipped) > 0 {
		return out.Files, fmt.Errorf("upload: not taken: %s", strings.Join(out.Skipped, ", "))
	}
	if len(out.Files) < len(paths) {
		return out.Files, fmt.Errorf("upload: %d of %d files were taken: the server refuses names that are too long or have control characters or backslashes", len(out.Files), len(paths))
	}
	return out.Files, nil
}

func fill(form *multipart.Writer, paths []string) error {
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		part, err := form.CreateFormFile("files", filepath.Base(p))
		if err == nil {
			_, err = io.Copy(part, f)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Uploads returns the files that were uploaded into a thread.
func (c *Client) Uploads(ctx context.Context, thread string) ([]File, error) {
	var out struct {
		Files []File `json:"files"`
	}
	err := c.do(ctx, http.MethodGet, "/api/threads/"+url.PathEscape(thread)+"/uploads/list", nil, &out)
	return out.Files, err
}

// DeleteUpload deletes one of them.
func (c *Client) DeleteUpload(ctx context.Context, thread, name string) error {
	return c.do(ctx, http.MethodDelete, "/api/threads/"+url.PathEscape(thread)+"/uploads/"+url.PathEscape(name), nil, nil)
}

// Artifact returns a file of a thread by the path that the agent has for it, such as /mnt/user-data/outputs/chart.png, and its type.
func (c *Client) Artifact(ctx context.Context, thread, virtual string) (content []byte, kind string, err error) {
	place := "/api/threads/" + url.PathEscape(thread) + "/artifacts" + (&url.URL{Path: "/" + strings.TrimPrefix(virtual, "/")}).EscapedPath()
	r, err := c.send(ctx, http.MethodGet, place, "", nil)
	if err != nil {
		return nil, "", err
	}
	defer r.Body.Close()
	content, err = io.ReadAll(r.Body)
	return content, r.Header.Get("Content-Type"), err
}

// InstallSkill installs a skill from an archive, and returns its name.
func (c *Client) InstallSkill(ctx context.Context, archive string) (string, error) {
	var t Thread
	if err := c.do(ctx, http.MethodPost, "/api/threads", struct{}{}, &t); err != nil {
		return "", err
	}
	defer func() { _ = c.DeleteThread(context.WithoutCancel(ctx), t.ID) }() // it has the archive alone
	files, err := c.Upload(ctx, t.ID, archive)
	if err != nil {
		return "", err
	}
	var out struct {
		Name string `json:"skill_name"`
	}
	err = c.do(ctx, http.MethodPost, "/api/skills/install", map[string]any{"thread_id": t.ID, "path": files[0].Path}, &out)
	return out.Name, err
}
