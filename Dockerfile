# docker build -t faceanon . && docker run --rm -it -v "$PWD:/data" faceanon anonymize photo.jpg out.png
FROM python:3.11-slim

# What opencv needs and the slim image lacks; torch, PyAV and the rest bring their own libraries.
RUN apt-get update && apt-get install -y --no-install-recommends libgl1 libglib2.0-0 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/faceanon
COPY pyproject.toml constraints.txt README.md LICENSE THIRD_PARTY.md ./
COPY src ./src
COPY configs ./configs
COPY checkpoints ./checkpoints
RUN pip install --no-cache-dir -c constraints.txt '.[train,onnx]' && rm -rf /opt/faceanon

RUN useradd --create-home faceanon
USER faceanon
WORKDIR /data
ENTRYPOINT ["faceanon"]
CMD ["--help"]
