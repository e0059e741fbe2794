package reevetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Error is a refusal of the server.
type Error struct {
	// Code is the HTTP status code.
	Code int
	// Message is the reason, for people.
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("reevetest: %d: %s", e.Code, e.Message)
}

// IsNotFound reports whether err is about a rule or a snapshot that does not exist.
func IsNotFound(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == http.StatusNotFound
}

// call sends a request of the control API. A nil body is none; a nil answer is not read.
func (s *Server) call(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("reevetest: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.URL()+"/reeve/v1/"+path, content)
	if err != nil {
		return fmt.Errorf("reevetest: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("reevetest: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reevetest: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		refused := &Error{Code: response.StatusCode, Message: string(text)}
		var status struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(text, &status) == nil && status.Message != "" {
			refused.Message = status.Message
		}
		return refused
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("reevetest: %s %s: %w", method, path, err)
	}
	return nil
}
