package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/deerflow/files"
	"understudy/internal/fault"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// fileHandlers serve the files of threads: uploads, and what the agent made.
type fileHandlers struct {
	*base
	*ownership
}

func (s *fileHandlers) routes() {
	const uploads = "/threads/{thread_id}/uploads"
	s.handle("POST", uploads, members, s.ownFiles(true, s.upload))
	s.handle("GET", uploads+"/list", members, s.ownFiles(false, func(c *fiber.Ctx, t string, f *files.Thread) error {
		list := []files.Upload(nil)
		if f != nil {
			var err error
			if list, err = f.List(); err != nil {
				return err
			}
		}
		return web.SendJSON(c, deerflow.Uploads(t, list))
	}))
	s.handle("GET", uploads+"/limits", members, s.ownThread(func(c *fiber.Ctx, _ *caller, _ string) error {
		set, err := s.DeerFlow.Settings()
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Of(struct {
			Files int   `json:"max_files"`
			Size  int64 `json:"max_file_size"`
			Total int64 `json:"max_total_size"`
		}{set.Uploads.MaxFiles, set.Uploads.MaxFileSize, set.Uploads.MaxTotalSize}))
	}))
	s.handle("DELETE", uploads+"/{name}", members, s.onExisting(func(c *fiber.Ctx, who *caller, _ string) error {
		return s.ownFiles(false, s.deleteUpload)(c, who)
	}))
	s.handle("GET", "/threads/{thread_id}/artifacts/*", members, s.ownFiles(false, s.getArtifact))
	s.handle("PUT", "/threads/{thread_id}/artifacts/*", members, s.onExisting(func(c *fiber.Ctx, who *caller, _ string) error {
		return s.ownFiles(false, s.editArtifact)(c, who)
	}))
}

// ownFiles opens the files of the caller's thread. Without create, f is nil when it has none.
func (s *fileHandlers) ownFiles(create bool, h func(c *fiber.Ctx, t string, f *files.Thread) error) handler {
	return s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		f, err := s.DeerFlow.Home.Thread(who.id, t, create)
		switch {
		case errors.Is(err, fs.ErrNotExist) && create:
			return deerflow.NoThread(t) // it was deleted meanwhile
		case errors.Is(err, fs.ErrNotExist):
			return h(c, t, nil)
		case err != nil:
			return err
		}
		defer f.Close()
		return h(c, t, f)
	})
}

// fileParts are the files of a multipart request.
type fileParts struct {
	r     *multipart.Reader
	empty func() bool // nothing was sent
}

func (p fileParts) Next() (string, io.Reader, error) {
	for {
		part, err := p.r.NextRawPart()
		if err == io.EOF || errors.Is(err, io.EOF) && p.empty() { //nolint:errorlint // wrapped, it ends a form in the middle
			return "", nil, io.EOF
		} else if err != nil {
			if errors.Is(err, io.EOF) { // not that of a whole form
				err = io.ErrUnexpectedEOF
			}
			return "", nil, fault.Wrap(fault.Invalid, "There was an error parsing the body", err)
		}
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil || params["name"] != "files" {
			continue
		}
		name, ok := params["filename"]
		if !ok {
			continue // a field that is no file
		}
		return name, part, nil
	}
}

// upload takes the files of a request one after the other, so that none is held in memory.
func (s *fileHandlers) upload(c *fiber.Ctx, t string, f *files.Thread) error {
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return err
	}
	missing := deerflow.Problems{{Type: "missing", Loc: []any{"body", "files"}, Msg: "Field required", Input: []byte("null")}}
	kind, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || kind != "multipart/form-data" {
		return missing
	}
	if params["boundary"] == "" {
		return fault.New(fault.Invalid, "Missing boundary in multipart.")
	}
	limits := files.Limits{Files: set.Uploads.MaxFiles, FileSize: set.Uploads.MaxFileSize, Total: set.Uploads.MaxTotalSize}
	body := s.bodyReader(c, limits.Total+multipartOverhead(limits.Files))
	taken, skipped, err := f.Take(c.UserContext(), fileParts{multipart.NewReader(body, params["boundary"]), body.untouched}, limits, s.DeerFlow.Converter(set))
	switch {
	case fault.Is(err, fault.Unprocessable):
		return missing
	case err != nil && body.err != nil:
		return body.err // of the connection, not of the form
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(fault.Invalid, "There was an error parsing the body", err)
	case errors.Is(err, fs.ErrNotExist):
		return deerflow.NoThread(t) // it was deleted meanwhile
	case err != nil:
		return err
	}
	web.Of(c).BodyRead = body.ended
	said := fmt.Sprintf("Successfully uploaded %d file(s)", len(taken))
	for _, u := range taken {
		if u.Problem != "" {
			said += fmt.Sprintf("; %s was not converted to Markdown: %s", u.Name, u.Problem)
			s.Log.WarnContext(c.UserContext(), "an uploaded document was not converted to Markdown; agents see its name only", "thread_id", t, "file", u.Name, "reason", u.Problem)
		}
	}
	return web.SendJSON(c, deerflow.Uploaded(t, taken, skipped, said))
}

// multipartOverhead is what a request has besides so many files.
func multipartOverhead(n int) int64 { return int64(n+8) << 12 }

func (s *fileHandlers) deleteUpload(c *fiber.Ctx, _ string, f *files.Thread) error {
	name := web.Param(c, "name")
	if f == nil {
		if files.Clean(name) != name {
			return fault.New(fault.Invalid, "Invalid path")
		}
		return fault.Newf(fault.NotFound, "File not found: %s", name)
	}
	if err := f.Delete(name); err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.Success("Deleted "+name))
}

// artifactPath is the path of an artifact: all of the request's after artifacts/.
func artifactPath(c *fiber.Ctx) string {
	raw := c.Params("*")
	if p, err := url.PathUnescape(raw); err == nil {
		return p
	}
	return raw
}

func (s *fileHandlers) getArtifact(c *fiber.Ctx, _ string, f *files.Thread) error {
	p := artifactPath(c)
	query := query(c, "download")
	download := query.Bool("download", false)
	if err := query.Err(); err != nil {
		return err
	}
	if f == nil {
		if _, err := files.Name(p); err != nil {
			return err
		}
		return fault.Newf(fault.NotFound, "Artifact not found: %s", p)
	}
	a, err := f.Artifact(p)
	if err != nil {
		return err
	}
	return sendArtifact(c, a, download)
}

// sendArtifact answers with a file, or the part of it that was requested. Active contents are only ever downloaded, and nothing is rendered with
// rights of this site; Chromium shows PDFs under this policy, too.
func sendArtifact(c *fiber.Ctx, a *files.Artifact, download bool) error {
	how := "inline"
	if a.Active || download {
		how = "attachment"
	}
	c.Set(fiber.HeaderContentDisposition, how+"; filename*=UTF-8''"+strings.ReplaceAll(url.QueryEscape(a.Name), "+", "%20"))
	kind := a.Type
	if strings.HasPrefix(kind, "text/") && !strings.Contains(kind, "charset") {
		kind += "; charset=utf-8"
	}
	c.Set(fiber.HeaderContentType, kind)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderContentSecurityPolicy, "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; media-src 'self'")
	c.Set(fiber.HeaderAcceptRanges, "bytes")
	modified := a.Modified.UTC().Format(http.TimeFormat)
	c.Set(fiber.HeaderLastModified, modified)
	if a.Member {
		c.Set(fiber.HeaderCacheControl, "private, max-age=300")
	} else {
		c.Set(fiber.HeaderCacheControl, "private, no-cache")
	}
	tag := `"` + a.Tag + `"`
	c.Set(fiber.HeaderETag, tag)
	if web.HasTag(c.Get(fiber.HeaderIfNoneMatch), tag) {
		c.Status(http.StatusNotModified)
		return a.Close()
	}
	part, err := partOf(c, a, tag, modified)
	if err != nil {
		return errors.Join(a.Close(), err)
	}
	c.Response().SetBodyStream(struct {
		io.Reader
		io.Closer
	}{io.LimitReader(a, part.length), a}, int(part.length)) // which closes it
	return nil
}

// partOf moves a file to the part of it that was requested, and sets the status and headers of that part.
func partOf(c *fiber.Ctx, a *files.Artifact, tag, modified string) (span, error) {
	whole := span{0, a.Size}
	header, version := c.Get(fiber.HeaderRange), c.Get(fiber.HeaderIfRange)
	if header == "" || version != "" && version != tag && version != modified {
		return whole, nil
	}
	part, all, err := readRange(header, a.Size)
	switch {
	case errors.Is(err, fiber.ErrRequestedRangeNotSatisfiable):
		c.Set(fiber.HeaderContentRange, fmt.Sprintf("bytes */%d", a.Size))
		return span{}, err
	case err != nil || all:
		return whole, err
	}
	if _, err := a.Seek(part.from, io.SeekStart); err != nil {
		return span{}, fmt.Errorf("read %s: %w", a.Name, err)
	}
	c.Set(fiber.HeaderContentRange, fmt.Sprintf("bytes %d-%d/%d", part.from, part.from+part.length-1, a.Size))
	c.Status(http.StatusPartialContent)
	return part, nil
}

var sha256Form = regexp.MustCompile("^[0-9a-f]{64}$")

func (s *fileHandlers) editArtifact(c *fiber.Ctx, t string, f *files.Thread) error {
	return s.form(c, func(form *deerflow.Form) error {
		content, expected := form.Required("content", 0, maxForm), form.Required("expected_sha256", 0, maxText)
		form.Match("expected_sha256", sha256Form)
		if err := form.Err(); err != nil {
			return err
		}
		p := artifactPath(c)
		if f == nil {
			return fault.Newf(fault.NotFound, "Artifact not found: %s", p)
		}
		if busy, err := s.busy(c, t); err != nil {
			return err
		} else if busy {
			return fault.New(fault.Conflict, "Thread has a run in flight. Edit the artifact after the run finishes.")
		}
		e, err := f.Edit(p, content, expected)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Of(struct {
			Path string `json:"path"`
			Sum  string `json:"sha256"`
			Size int    `json:"size"`
		}{e.Path, e.Sum, e.Size}))
	})
}

// bodyReader reads the body of a request as it arrives, at most so many bytes.
type bodyReader struct {
	in    io.Reader
	wait  func()
	read  int64
	left  int64
	ended bool
	err   error // why reading failed
}

func (s *fileHandlers) bodyReader(c *fiber.Ctx, limit int64) *bodyReader {
	in := c.Context().RequestBodyStream()
	if in == nil {
		in = bytes.NewReader(c.Request().Body())
	}
	conn := c.Context().Conn()
	return &bodyReader{in: in, left: limit, wait: func() { _ = conn.SetReadDeadline(time.Now().Add(s.BodyTimeout)) }}
}

// untouched reports that nothing was read.
func (b *bodyReader) untouched() bool { return b.read == 0 }

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		b.err = fault.New(fault.TooLarge, "Total upload size too large")
		return 0, b.err
	}
	b.wait()
	n, err := b.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.ended = true
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.err = fiber.ErrRequestTimeout
	case err != nil:
		b.err = fault.Wrap(fault.Invalid, "The request body could not be read", err)
	}
	return n, err
}
