package reevetest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// RequestFilter selects requests of the log. Empty fields select all.
type RequestFilter struct {
	Verb string
	// Group is the API group; a pointer to "" is core.
	Group     *string
	Resource  string
	Namespace string
	Name      string
	// Subresource is such as status; a pointer to "" is the object itself.
	Subresource *string
	User        string
	// UserAgent is a part of the header.
	UserAgent string
	Path      string
	Code      int
	// Bodies includes the bodies of requests; those of Secrets and those above 64 KiB are not in the log.
	Bodies bool
}

// Request is a request of the log.
type Request struct {
	Time        time.Time `json:"time"`
	Verb        string    `json:"verb"`
	Path        string    `json:"path"`
	Query       string    `json:"query"`
	Group       string    `json:"group"`
	Resource    string    `json:"resource"`
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	Subresource string    `json:"subresource"`
	User        string    `json:"user"`
	UserAgent   string    `json:"userAgent"`
	// Code is 0 where the connection was broken in place of an answer.
	Code int `json:"code"`
	// Body is JSON as it is; other text is a JSON string, and other bytes are a JSON string in base64.
	Body json.RawMessage `json:"body"`
}

type requestList struct {
	Count int       `json:"count"`
	Met   bool      `json:"met"`
	Items []Request `json:"items"`
}

func (f RequestFilter) query() url.Values {
	query := url.Values{}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("verb", f.Verb)
	set("resource", f.Resource)
	set("namespace", f.Namespace)
	set("name", f.Name)
	set("user", f.User)
	set("userAgent", f.UserAgent)
	set("path", f.Path)
	if f.Group != nil {
		query.Set("group", *f.Group)
	}
	if f.Subresource != nil {
		query.Set("subresource", *f.Subresource)
	}
	if f.Code != 0 {
		query.Set("code", strconv.Itoa(f.Code))
	}
	if f.Bodies {
		query.Set("bodies", "true")
	}
	return query
}

func (s *Server) requests(ctx context.Context, query url.Values) (requestList, error) {
	var list requestList
	err := s.call(ctx, http.MethodGet, "requests?"+query.Encode(), nil, &list)
	return list, err
}

// Requests returns the newest requests that the filter selects, at most 10,000, oldest first.
func (s *Server) Requests(ctx context.Context, filter RequestFilter) ([]Request, error) {
	query := filter.query()
	query.Set("limit", "10000")
	list, err := s.requests(ctx, query)
	return list.Items, err
}

// CountRequests returns the number of requests that the filter selects.
func (s *Server) CountRequests(ctx context.Context, filter RequestFilter) (int, error) {
	query := filter.query()
	query.Set("limit", "0")
	list, err := s.requests(ctx, query)
	return list.Count, err
}

// WaitForRequests waits until the filter selects at least count requests, and returns them. It returns the error of ctx if that ends
// before.
func (s *Server) WaitForRequests(ctx context.Context, filter RequestFilter, count int) ([]Request, error) {
	query := filter.query()
	query.Set("limit", "10000")
	query.Set("atLeast", strconv.Itoa(count))
	// The server answers now and then, so that a lost connection is noticed.
	query.Set("waitSeconds", "30")
	for {
		list, err := s.requests(ctx, query)
		switch {
		case ctx.Err() != nil:
			return nil, errors.Join(errors.New("reevetest: the requests did not come"), ctx.Err())
		case isRefusal(err):
			return nil, err
		case err != nil:
			// It may be an outage.
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		case list.Met:
			return list.Items, nil
		}
	}
}

// isRefusal reports whether the server answered with the error, and no connection broke.
func isRefusal(err error) bool {
	var refused *Error
	return errors.As(err, &refused)
}

// ClearRequests clears the log.
func (s *Server) ClearRequests(ctx context.Context) error {
	return s.call(ctx, http.MethodDelete, "requests", nil, nil)
}
