// Package client is DeerFlow's embedded client for programs in Go: it chats, reads threads, and manages files, skills, memory and MCP servers of one user. What it returns has the
// shapes of the Gateway's API, of which it is a client.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Client acts for one user. Its methods may be called from any goroutine.
type Client struct {
	base, token, user string
	http              *http.Client
}

// New returns a client of a server at an address such as http://127.0.0.1:8001, with its internal token. user is the ID of an account, or any other text; "": default.
func New(base, token, user string, c *http.Client) *Client {
	return &Client{base: base, token: token, user: user, http: c}
}

// Error is the refusal of the server.
type Error struct {
	Status int
	Detail string // text, or JSON
}

func (e *Error) Error() string { return fmt.Sprintf("%s (status %d)", e.Detail, e.Status) }

// Thread is a conversation. Values are its whole state, where they are requested.
type Thread struct {
	ID       string          `json:"thread_id"`
	Status   string          `json:"status"`
	Created  time.Time       `json:"created_at"`
	Updated  time.Time       `json:"updated_at"`
	Metadata json.RawMessage `json:"metadata"`
	Values   json.RawMessage `json:"values"`
}

// Model is a model of config.yaml.
type Model struct {
	Name        string `json:"name"`
	Model       string `json:"model"`
	DisplayName string `json:"display_name"`
	Description string `json:"description"`
	Thinking    bool   `json:"supports_thinking"`
	Effort      bool   `json:"supports_reasoning_effort"`
}

// Skill is a skill as the user has it.
type Skill struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	License     string `json:"license"`
	Category    string `json:"category"`
	Enabled     bool   `json:"enabled"`
}

// File is an upload.
type File struct {
	Name     string `json:"filename"`
	Size     int64  `json:"size"`
	Path     string `json:"virtual_path"` // where the agent finds it
	URL      string `json:"artifact_url"`
	Markdown string `json:"markdown_virtual_path"` // of the text of a document; "" none
}

// Threads returns the newest threads, with their titles as Values.
func (c *Client) Threads(ctx context.Context, limit int) (list []Thread, err error) {
	return list, c.do(ctx, http.MethodPost, "/api/threads/search", map[string]any{"limit": limit}, &list)
}

// Thread returns a thread with its state.
func (c *Client) Thread(ctx context.Context, thread string) (t Thread, err error) {
	return t, c.do(ctx, http.MethodGet, "/api/threads/"+url.PathEscape(thread), nil, &t)
}

// DeleteThread deletes a thread with its files.
func (c *Client) DeleteThread(ctx context.Context, thread string) error {
	return c.do(ctx, http.MethodDelete, "/api/threads/"+url.PathEscape(thread), nil, nil)
}

// Models returns the models of config.yaml.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var out struct {
		Models []Model `json:"models"`
	}
	err := c.do(ctx, http.MethodGet, "/api/models", nil, &out)
	return out.Models, err
}

// Model returns one of them.
func (c *Client) Model(ctx context.Context, name string) (m Model, err error) {
	return m, c.do(ctx, http.MethodGet, "/api/models/"+url.PathEscape(name), nil, &m)
}

// Skills returns the skills of the user.
func (c *Client) Skills(ctx context.Context) ([]Skill, error) {
	var out struct {
		Skills []Skill `json:"skills"`
	}
	err := c.do(ctx, http.MethodGet, "/api/skills", nil, &out)
	return out.Skills, err
}

// Skill returns one of them.
func (c *Client) Skill(ctx context.Context, name string) (s Skill, err error) {
	return s, c.do(ctx, http.MethodGet, "/api/skills/"+url.PathEscape(name), nil, &s)
}

// EnableSkill switches a skill on or off.
func (c *Client) EnableSkill(ctx context.Context, name string, on bool) (s Skill, err error) {
	return s, c.do(ctx, http.MethodPut, "/api/skills/"+url.PathEscape(name), map[string]any{"enabled": on}, &s)
}

// Memory returns what is remembered of the user; ReloadMemory reads it anew, ClearMemory forgets it, ImportMemory replaces it.
func (c *Client) Memory(ctx context.Context) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodGet, "/api/memory", nil)
}

// ReloadMemory reads the memory anew.
func (c *Client) ReloadMemory(ctx context.Context) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodPost, "/api/memory/reload", nil)
}

// ClearMemory forgets everything.
func (c *Client) ClearMemory(ctx context.Context) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodDelete, "/api/memory", nil)
}

// ImportMemory replaces the memory by one that Memory returned.
func (c *Client) ImportMemory(ctx context.Context, memory json.RawMessage) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodPost, "/api/memory/import", memory)
}

// MemoryStatus returns how the memory is configured, and what is in it.
func (c *Client) MemoryStatus(ctx context.Context) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodGet, "/api/memory/status", nil)
}

// Servers returns the MCP servers of extensions_config.json, without secrets. SetServers replaces them; a secret that is *** stays.
func (c *Client) Servers(ctx context.Context) (map[string]json.RawMessage, error) {
	var out struct {
		Servers map[string]json.RawMessage `json:"mcp_servers"`
	}
	err := c.do(ctx, http.MethodGet, "/api/mcp/config", nil, &out)
	return out.Servers, err
}

// SetServers replaces the MCP servers.
func (c *Client) SetServers(ctx context.Context, servers map[string]json.RawMessage) error {
	return c.do(ctx, http.MethodPut, "/api/mcp/config", map[string]any{"mcp_servers": servers}, nil)
}

// ResetAgent lets the next run begin with tools of MCP servers and skills as they are then. Settings count at once without it.
func (c *Client) ResetAgent(ctx context.Context) error {
	if err := c.do(ctx, http.MethodPost, "/api/mcp/cache/reset", nil, nil); err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, "/api/skills/reload", nil, nil)
}

func (c *Client) raw(ctx context.Context, method, path string, body any) (out json.RawMessage, err error) {
	return out, c.do(ctx, method, path, body, &out)
}

// do sends a request with a body as JSON, and decodes the answer; with out nil it is only checked.
func (c *Client) do(ctx context.Context, method, path string, body, out any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	r, err := c.send(ctx, method, path, "application/json", sent)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, r.Body)
		return err
	}
	return json.NewDecoder(r.Body).Decode(out)
}

// send sends a request as the user. A status from 400 on is an *Error.
func (c *Client) send(ctx context.Context, method, path, kind string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("X-DeerFlow-Internal-Token", c.token)
	if c.user != "" {
		req.Header.Set("X-DeerFlow-Owner-User-Id", c.user)
	}
	req.Header.Set("X-CSRF-Token", "x")
	req.AddCookie(&http.Cookie{Name: "csrf_token", Value: "x"}) //nolint:gosec // no cookie of a browser
	r, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if r.StatusCode < http.StatusBadRequest {
		return r, nil
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10)) // the status says enough
	var said struct {
		Detail json.RawMessage `json:"detail"`
	}
	e := &Error{Status: r.StatusCode, Detail: string(text)}
	if json.Unmarshal(text, &said) == nil && said.Detail != nil {
		if json.Unmarshal(said.Detail, &e.Detail) != nil {
			e.Detail = string(said.Detail)
		}
	}
	return nil, e
}
