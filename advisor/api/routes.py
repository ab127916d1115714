"""Routes that the web server answers itself."""

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from advisor import __version__


async def healthz(_request: Request) -> JSONResponse:
    """Say that the process answers, and with which version."""
    return JSONResponse({"status": "ok", "service": "inference-fleet-advisor", "version": __version__})


ROUTES = [Route("/healthz", healthz)]
